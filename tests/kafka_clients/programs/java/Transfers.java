// A worker of `quorumlog chaos run transactions`: java -cp JARS Transfers PLAN. It makes the requested transfers, each
// batch in one transaction with the offsets of its consumer group, and logs the outcomes.
// The plan and the log: chaos/processes/transfer_log.py.
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transfers {
    private static final int FENCED = 3;
    private static volatile boolean stopping;
    private final String plan;
    private final String name;
    private final FileOutputStream log;
    private final Random random;
    private int attempts;

    private Transfers(String plan) throws IOException {
        this.plan = plan;
        this.name = text("name");
        this.log = new FileOutputStream(text("log"), true);
        this.random = new Random(name.hashCode());
    }

    public static void main(String[] arguments) throws Exception {
        Thread starter = new Thread(() -> {
            try {
                System.in.read();
            } catch (IOException error) {
                // The starter is gone either way.
            }
            Runtime.getRuntime().halt(1);
        });
        starter.setDaemon(true);
        starter.start();
        Thread worker = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                worker.join();
            } catch (InterruptedException error) {
                return;
            }
            Runtime.getRuntime().halt(0);
        }));
        try {
            new Transfers(arguments[0]).work();
        } catch (ProducerFencedException fenced) {
            Runtime.getRuntime().halt(FENCED);
        }
        if (!stopping) {
            System.exit(1);
        }
    }

    private void work() throws Exception {
        boolean first = true;
        while (!stopping) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing());
                    KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming())) {
                retried(producer::initTransactions);
                if (first) {
                    write("{\"event\": \"started\"}");
                    first = false;
                }
                consumer.subscribe(List.of(text("requests")));
                while (!stopping) {
                    List<ConsumerRecord<String, String>> requests = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(200)).forEach(requests::add);
                    if (!requests.isEmpty() && !transaction(producer, consumer, requests)) {
                        rewind(consumer);
                    }
                }
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                note(fenced);
                throw new ProducerFencedException(fenced.getMessage());
            } catch (KafkaException error) {
                note(error);
            }
        }
    }

    private boolean transaction(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            List<ConsumerRecord<String, String>> requests) throws IOException {
        String attempt = name + "." + ++attempts;
        List<String> numbers = new ArrayList<>();
        requests.forEach(each -> numbers.add(each.value().split(",")[0]));
        write("{\"event\": \"begun\", \"attempt\": \"" + attempt + "\", \"ns\": " + System.nanoTime()
                + ", \"transfers\": [" + String.join(", ", numbers) + "]}");
        String outcome = "unknown";
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> each : requests) {
                String[] fields = each.value().split(",");
                post(producer, attempt, fields[0], fields[1], "-" + fields[3]);
                post(producer, attempt, fields[0], fields[2], fields[3]);
                offsets.put(new TopicPartition(each.topic(), each.partition()),
                        new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (random.nextDouble() < Double.parseDouble(field("abort_share", "([0-9.e-]+)"))) {
                retried(producer::abortTransaction);
                outcome = "aborted";
            } else {
                retried(producer::commitTransaction);
                outcome = "committed";
            }
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            throw fenced;
        } catch (KafkaException error) {
            note(error);
            retried(producer::abortTransaction);
            outcome = "aborted";
        } finally {
            write("{\"event\": \"" + outcome + "\", \"attempt\": \"" + attempt + "\", \"ns\": " + System.nanoTime() + "}");
        }
        return outcome.equals("committed");
    }

    private void post(KafkaProducer<String, String> producer, String attempt, String number, String account,
            String amount) {
        int partition = Integer.parseInt(account) % number("partitions");
        producer.send(new ProducerRecord<>(text("accounts"), partition, account,
                String.join(",", number, account, amount, attempt)));
    }

    private void rewind(KafkaConsumer<String, String> consumer) throws IOException {
        while (!stopping) {
            try {
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                for (TopicPartition each : consumer.assignment()) {
                    if (committed.get(each) == null) {
                        consumer.seekToBeginning(List.of(each));
                    } else {
                        consumer.seek(each, committed.get(each).offset());
                    }
                }
                return;
            } catch (KafkaException error) {
                note(error);
            }
        }
    }

    /** Repeats a call whose time was up: until then its outcome is unknown. */
    private void retried(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (stopping) {
                    throw error;
                }
            }
        }
    }

    private Properties connected() {
        Properties properties = new Properties();
        Matcher matcher = Pattern.compile("\"options\": \\{(.*?)\\}").matcher(plan);
        if (matcher.find()) {
            Matcher option = Pattern.compile("\"([^\"]+)\": \"([^\"]*)\"").matcher(matcher.group(1));
            while (option.find()) {
                properties.put(option.group(1), option.group(2));
            }
        }
        properties.put("client.id", name);
        properties.put("reconnect.backoff.max.ms", "500");
        return properties;
    }

    private Properties producing() {
        Properties properties = connected();
        properties.put("transactional.id", text("transactional_id"));
        properties.put("transaction.timeout.ms", number("transaction_timeout_ms"));
        properties.put("delivery.timeout.ms", number("transaction_timeout_ms"));
        properties.put("request.timeout.ms", 5_000);
        properties.put("max.block.ms", 10_000);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        return properties;
    }

    private Properties consuming() {
        Properties properties = connected();
        properties.put("group.id", text("group"));
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", false);
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", number("batch"));
        properties.put("session.timeout.ms", number("session_timeout_ms"));
        properties.put("heartbeat.interval.ms", number("session_timeout_ms") / 4);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        return properties;
    }

    private String field(String key, String form) {
        Matcher matcher = Pattern.compile("\"" + key + "\": " + form).matcher(plan);
        if (!matcher.find()) {
            throw new IllegalArgumentException("the plan has no " + key);
        }
        return matcher.group(1);
    }

    private String text(String key) {
        return field(key, "\"([^\"]*)\"");
    }

    private int number(String key) {
        return Integer.parseInt(field(key, "(\\d+)"));
    }

    private void note(Exception error) throws IOException {
        write("{\"event\": \"note\", \"message\": \"" + String.valueOf(error).replaceAll("[\"\\\\\n]", "'") + "\"}");
    }

    private void write(String line) throws IOException {
        log.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    }
}
