// Kafka's own client in Java, as a program that a scenario drives: see docs/clients.md.
//
// It is compiled when it starts, against the version of kafka-clients in its class path: 2.1 or
// later, and it uses what all of these have. The version is its argument. One thread reads
// requests, one answers them: a consumer may be used by one thread alone. Callbacks of a producer
// come from a third.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long IDLE_MS = 50;
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    // Surely not appended, whatever was tried before: by the class of the exception.
    static final Set<String> DEFINITE = Set.of(
        "RecordTooLargeException", "InvalidTopicException", "InvalidRequiredAcksException");
    // Definite in a transaction alone: another producer has ended it.
    static final Set<String> FENCED = Set.of("ProducerFencedException", "InvalidProducerEpochException");

    /** What was answered to a request, by its name. */
    static class Refused extends RuntimeException {
        Refused(Throwable cause) {
            super(name(cause));
        }
    }

    static String name(Throwable error) {
        return error.getClass().getSimpleName();
    }

    static synchronized void say(ObjectNode row) {
        OUT.println(row.toString());
    }

    static ObjectNode event(String name) {
        return JSON.createObjectNode().put("event", name);
    }

    static void notified(Throwable error) {
        say(event("notified").put("error", name(error)));
    }

    /** The settings of a scenario over those that a client has here anyway. */
    static Map<String, Object> settings(JsonNode config, Map<String, Object> defaults) {
        Map<String, Object> all = new HashMap<>(defaults);
        all.put("bootstrap.servers", config.get("bootstrap").asText());
        all.put("reconnect.backoff.ms", "20");
        all.put("reconnect.backoff.max.ms", "200");
        all.put("retry.backoff.ms", "50");
        all.put("metadata.max.age.ms", "2000");
        config.get("settings").fields().forEachRemaining(
            one -> all.put(one.getKey(), one.getValue().asText()));
        return all;
    }

    interface Client {
        /** Why the request could not be done, or nothing. */
        String handle(String verb, JsonNode request);

        /** What is to be done between requests. */
        default void idle() {
        }
    }

    static class Producer implements Client {
        final String topic;
        final boolean transacts;
        final KafkaProducer<byte[], byte[]> producer;
        final AtomicInteger left = new AtomicInteger();

        Producer(JsonNode config) {
            topic = config.get("topic").asText();
            transacts = !config.get("transactional_id").isNull();
            Map<String, Object> all = settings(config, Map.of(
                "acks", "all",
                "enable.idempotence", transacts ? "true" : "false",
                "max.in.flight.requests.per.connection", "1",
                "linger.ms", "5",
                "request.timeout.ms", "5000",
                "delivery.timeout.ms", "10000",
                "max.block.ms", "10000"));
            if (transacts) {
                all.put("transactional.id", config.get("transactional_id").asText());
            }
            if (!"true".equals(all.get("enable.idempotence"))) {
                all.putIfAbsent("retries", "0");
            }
            producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
            if (transacts) {
                attempt(producer::initTransactions);
            }
        }

        public String handle(String verb, JsonNode request) {
            switch (verb) {
                case "send":
                    return send(request);
                case "begin_transaction":
                    return attempt(producer::beginTransaction);
                case "commit_transaction":
                    return attempt(producer::commitTransaction);
                case "abort_transaction":
                    return attempt(producer::abortTransaction);
                case "leave":
                    producer.close();
                    return "";
                default:
                    return "a producer has no " + verb;
            }
        }

        String attempt(Runnable ask) {
            try {
                ask.run();
                return "";
            } catch (KafkaException failed) {
                throw new Refused(failed);
            }
        }

        String send(JsonNode request) {
            long end = System.nanoTime() + (long) (request.get("deadline_s").asDouble() * 1e9);
            JsonNode key = request.get("key");
            byte[] keyed = key.isNull() ? null : key.asText().getBytes(StandardCharsets.UTF_8);
            for (JsonNode one : request.get("records")) {
                String value = one.asText();
                left.incrementAndGet();
                try {
                    producer.send(
                        new ProducerRecord<>(topic, request.get("partition").asInt(), keyed,
                            value.getBytes(StandardCharsets.UTF_8)),
                        (metadata, error) -> sent(value, error == null ? metadata.offset() : -1, error, false));
                } catch (KafkaException | IllegalStateException refused) { // it took no record
                    sent(value, -1, refused, true);
                }
            }
            boolean waits = request.get("waits").asBoolean();
            while (waits && left.get() > 0 && System.nanoTime() < end) {
                pause();
            }
            return waits && left.get() > 0 ? left.get() + " sends were not answered" : "";
        }

        void sent(String value, long offset, Throwable error, boolean neverLeft) {
            ObjectNode row = event("sent").put("value", value);
            if (error != null) {
                row.put("error", name(error));
                if (neverLeft || DEFINITE.contains(name(error))
                        || transacts && FENCED.contains(name(error))) {
                    row.put("appended", false);
                }
            } else if (offset >= 0) { // with acks=0 there is none
                row.put("offset", offset);
            }
            say(row);
            left.decrementAndGet();
        }
    }

    /** Reports the commits that were done, of those too that a consumer makes by itself. */
    public static class Commits implements ConsumerInterceptor<byte[], byte[]> {
        public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
            return records;
        }

        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            committed(offsets, null);
        }

        public void close() {
        }

        public void configure(Map<String, ?> configs) {
        }
    }

    static void committed(Map<TopicPartition, OffsetAndMetadata> offsets, Throwable error) {
        offsets.forEach((part, position) -> {
            ObjectNode row = event("committed")
                .put("partition", part.partition()).put("offset", position.offset());
            say(error == null ? row : row.put("error", name(error)));
        });
    }

    static class Consumer implements Client, ConsumerRebalanceListener {
        final String topic;
        final boolean hasGroup;
        final KafkaConsumer<byte[], byte[]> consumer;
        boolean polls; // between requests
        boolean hasErred; // and nobody has asked for records since
        int count;

        Consumer(JsonNode config) {
            topic = config.get("topic").asText();
            hasGroup = !config.get("group").isNull();
            Map<String, Object> all = settings(config, Map.of(
                "auto.offset.reset", "earliest",
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "fetch.max.wait.ms", "100",
                "max.poll.records", "1", // a poll takes what was asked for, and no more
                "interceptor.classes", List.of(Commits.class)));
            if (hasGroup) {
                all.put("group.id", config.get("group").asText());
            }
            if ("error".equals(all.get("auto.offset.reset"))) {
                all.put("auto.offset.reset", "none");
            }
            all.computeIfPresent("partition.assignment.strategy", (name, named) -> assignors(named));
            consumer = new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        static Object assignors(Object named) {
            String in = "org.apache.kafka.clients.consumer.";
            return named.toString()
                .replace("cooperative-sticky", in + "CooperativeStickyAssignor")
                .replace("roundrobin", in + "RoundRobinAssignor")
                .replace("range", in + "RangeAssignor");
        }

        public String handle(String verb, JsonNode request) {
            long end = System.nanoTime() + (long) (request.get("deadline_s").asDouble() * 1e9);
            switch (verb) {
                case "subscribe":
                    consumer.subscribe(Set.of(topic), this);
                    polls = true;
                    while (consumer.assignment().isEmpty() && System.nanoTime() < end) {
                        take(IDLE_MS);
                    }
                    return consumer.assignment().isEmpty() ? "it was given no partition" : "";
                case "assign":
                    TopicPartition part = new TopicPartition(topic, request.get("partition").asInt());
                    consumer.assign(Set.of(part));
                    if (!hasGroup) {
                        consumer.seek(part, 0);
                    }
                    polls = true;
                    onPartitionsAssigned(Set.of(part));
                    return "";
                case "poll":
                    return poll(request.get("records").asInt(), end);
                case "commit":
                    return commit(request);
                case "stall":
                    polls = false;
                    return "";
                case "wake":
                    polls = true;
                    return "";
                case "leave":
                    polls = false;
                    consumer.close();
                    return "";
                default:
                    return "a consumer has no " + verb;
            }
        }

        public void idle() {
            if (polls) {
                take(0);
            }
        }

        String poll(int records, long end) {
            int wanted = count + records;
            consumer.resume(consumer.assignment());
            while (count < wanted && !hasErred && System.nanoTime() < end) {
                take(IDLE_MS);
            }
            consumer.pause(consumer.assignment());
            boolean ended = count >= wanted || hasErred;
            hasErred = false;
            return ended ? "" : "it took " + (records - (wanted - count)) + " of " + records + " records";
        }

        /** A record, or an error in its place. */
        void take(long timeoutMs) {
            try {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(timeoutMs))) {
                    count++;
                    ObjectNode row = event("polled").put("value", text(one.value()))
                        .put("offset", one.offset()).put("partition", one.partition());
                    one.leaderEpoch().ifPresent(epoch -> row.put("leader_epoch", epoch));
                    say(row);
                }
            } catch (KafkaException failed) {
                notified(failed);
                hasErred = true;
            }
        }

        String commit(JsonNode request) {
            Map<TopicPartition, OffsetAndMetadata> asked = new HashMap<>();
            for (JsonNode one : request.get("offsets")) {
                asked.put(new TopicPartition(topic, one.get("partition").asInt()),
                    new OffsetAndMetadata(one.get("offset").asLong()));
            }
            if (!request.get("waits").asBoolean()) {
                consumer.commitAsync(asked, (offsets, error) -> failed(asked, error));
                return "";
            }
            try {
                consumer.commitSync(asked, Duration.ofSeconds(request.get("deadline_s").asLong()));
            } catch (KafkaException error) {
                failed(asked, error);
            }
            return "";
        }

        void failed(Map<TopicPartition, OffsetAndMetadata> asked, Throwable error) {
            if (error != null) { // otherwise Commits has said so
                committed(asked, error);
            }
        }

        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            consumer.pause(assigned); // records come when they are asked for
            has(consumer.assignment());
        }

        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            Set<TopicPartition> kept = new java.util.HashSet<>(consumer.assignment());
            kept.removeAll(revoked);
            has(kept);
        }

        void has(Collection<TopicPartition> parts) {
            TreeSet<Integer> numbers = new TreeSet<>();
            parts.forEach(part -> numbers.add(part.partition()));
            ObjectNode row = event("assigned");
            row.set("partitions", JSON.valueToTree(numbers));
            say(row);
        }
    }

    /** Bytes as the tables of a run have them (results/record_texts.py). */
    static String text(byte[] value) {
        if (value == null) {
            return null;
        }
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(value)).toString();
            if (!text.startsWith("hex:") && !text.startsWith("⟨") && !text.endsWith("⟩")) {
                return text;
            }
        } catch (CharacterCodingException notText) {
            // its digits, then
        }
        return "hex:" + HexFormat.of().formatHex(value);
    }

    static void pause() {
        try {
            Thread.sleep(1);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    static void read(BlockingQueue<JsonNode> requests) {
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                requests.add(JSON.readTree(line));
            }
        } catch (java.io.IOException unreadable) {
            System.err.println("standard input: " + unreadable.getMessage());
        }
        Runtime.getRuntime().halt(0); // nobody drives it any more
    }

    public static void main(String[] arguments) throws InterruptedException {
        BlockingQueue<JsonNode> requests = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(requests));
        reader.setDaemon(true);
        reader.start();
        Client client = null;
        while (true) {
            JsonNode request = requests.poll(IDLE_MS, TimeUnit.MILLISECONDS);
            if (request == null) {
                if (client != null) {
                    client.idle();
                }
                continue;
            }
            ObjectNode answer = JSON.createObjectNode().put("id", request.get("id").asInt());
            try {
                String verb = request.get("do").asText();
                if (verb.equals("describe")) {
                    answer.put("client", "java").put("version", arguments[0]);
                    answer.putArray("can").add("idempotence").add("transactions").add("groups");
                } else if (verb.equals("start")) {
                    boolean produces = request.get("kind").asText().equals("producer");
                    client = produces ? new Producer(request) : new Consumer(request);
                } else {
                    answer.put("problem", client.handle(verb, request));
                }
            } catch (Refused refused) {
                answer.put("error", refused.getMessage());
            } catch (RuntimeException failed) {
                Throwable cause = failed.getCause() == null ? failed : failed.getCause();
                answer.put("problem", name(cause) + ": " + cause.getMessage());
            }
            say(answer);
        }
    }
}
