// Copies records in transactions with Apache Kafka's Java client, each of them exactly once:
// java -cp JARS Transactions.java SERVERS SOURCE TARGET TRANSACTIONAL_ID GROUP COUNT PER_TRANSACTION.
//
// A former producer with the same transactional id leaves a transaction open. Every fourth transaction is aborted, and
// its records are copied again. It prints the values that a reader of committed records finds, a line for each, and last
// the exception that the former producer gets when it commits.
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    private static final int ABORTED_EVERY = 4;
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], source = arguments[1], target = arguments[2], name = arguments[3];
        int count = Integer.parseInt(arguments[5]), each = Integer.parseInt(arguments[6]);
        try (var former = producer(servers, name); var present = producer(servers, name)) {
            former.initTransactions();
            former.beginTransaction();
            former.send(new ProducerRecord<>(target, "of the former producer")).get();
            present.initTransactions();
            copy(servers, source, target, arguments[4], count, each, present);
            String refusal = "none";
            try {
                former.commitTransaction();
            } catch (KafkaException refused) {
                refusal = refused.getClass().getSimpleName();
            }
            read(servers, target, count);
            System.out.println(refusal);
            former.close(Duration.ZERO);
        }
    }

    private static KafkaProducer<String, String> producer(String servers, String name) {
        var properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("transactional.id", name);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String servers, String group, int most) {
        var properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("group.id", group);
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", most);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static void copy(
            String servers,
            String source,
            String target,
            String group,
            int count,
            int each,
            KafkaProducer<String, String> producer) {
        long until = System.nanoTime() + PATIENCE.toNanos();
        try (var consumer = consumer(servers, group, each)) {
            consumer.subscribe(List.of(source));
            for (int copied = 0, number = 1; copied < count;) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException(copied + " of " + count + " records are copied");
                }
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.value()));
                    next.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                if (number++ % ABORTED_EVERY == 0) {
                    producer.abortTransaction();
                    seekToCommitted(consumer);
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
    }

    private static void seekToCommitted(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach((partition, offset) -> {
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset);
            }
        });
    }

    private static void read(String servers, String topic, int count) {
        long until = System.nanoTime() + PATIENCE.toNanos();
        try (var consumer = consumer(servers, "of-" + topic, 500)) {
            consumer.assign(consumer.partitionsFor(topic).stream()
                .map(partition -> new TopicPartition(topic, partition.partition())).toList());
            consumer.seekToBeginning(consumer.assignment());
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("the end of " + topic + " is not reached");
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.value());
                }
            }
        }
    }
}
