// Counts records by key with Kafka Streams, in windows of ten minutes and in sessions that five minutes end:
// java -cp JARS StreamsCounts SERVERS STATE_FOLDER GUARANTEE. Results are KEY@START-END and the count; SIGINT ends it.
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

public class StreamsCounts {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "counts");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put("auto.offset.reset", "earliest");
        properties.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.1");

        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> records = builder.<String, String>stream("clicks").groupByKey();
        Duration late = Duration.ofHours(2);
        publish(records.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(10), late))
                .count(Materialized.as("windows")), "windows");
        publish(records.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMinutes(5), late))
                .count(Materialized.as("sessions")), "sessions");

        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(15));
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }

    private static void publish(KTable<Windowed<String>, Long> counts, String topic) {
        counts.toStream()
                .map((key, count) -> KeyValue.pair(
                        key.key() + "@" + key.window().start() + "-" + key.window().end(),
                        count == null ? null : count.toString()))
                .to(topic);
    }
}
