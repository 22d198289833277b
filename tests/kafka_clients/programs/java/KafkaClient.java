// Writes and reads records with Apache Kafka's Java client:
// java -cp JARS KafkaClient.java write SERVERS TOPIC CODEC, or … read SERVERS TOPIC GROUP COUNT [classic|consumer].
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[1]);
        if (arguments[0].equals("write")) {
            write(properties, arguments[2], arguments[3]);
        } else {
            properties.put("group.id", arguments[3]);
            if (arguments.length > 5) {
                properties.put("group.protocol", arguments[5]);
            }
            read(properties, arguments[2], Integer.parseInt(arguments[4]));
        }
    }

    private static void write(Properties properties, String topic, String codec) throws Exception {
        properties.put("compression.type", codec);
        properties.put("max.request.size", 2 << 20);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                JsonNode record = JSON.readTree(line);
                var headers = new RecordHeaders();
                for (JsonNode header : record.get("headers")) {
                    headers.add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    topic,
                    record.get("partition").asInt(),
                    record.get("timestamp").asLong(),
                    bytes(record.get("key")),
                    bytes(record.get("value")),
                    headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    private static void read(Properties properties, String topic, int count) throws Exception {
        properties.put("auto.offset.reset", "earliest");
        properties.put("client.rack", System.getenv().getOrDefault("CLIENT_RACK", ""));
        properties.put("enable.auto.commit", "false");
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            long until = System.nanoTime() + Duration.ofMinutes(1).toNanos();
            for (int left = count; left > 0;) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException(left + " records did not come");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    ObjectNode line = JSON.createObjectNode();
                    line.put("partition", record.partition()).put("offset", record.offset());
                    line.put("timestamp", record.timestamp()).put("key", record.key()).put("value", record.value());
                    var headers = line.putArray("headers");
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(header.value());
                    }
                    out.println(JSON.writeValueAsString(line));
                    left--;
                }
            }
            consumer.commitSync();
        }
        out.flush();
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
