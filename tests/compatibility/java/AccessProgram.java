// What Apache Kafka's Java clients may do: the work `access` of ../programs/command_line.py.
//   java -cp CLASSES:JARS/* AccessProgram --bootstrap HOST:PORT,... --ca FILE < cells
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class AccessProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String MODULES = "org.apache.kafka.common.security.";
    private static final int AT_A_TIME = 4;
    private static final int LIMIT_MS = 20_000;

    private final String bootstrap;
    private final String authorities;

    AccessProgram(String bootstrap, String authorities) {
        this.bootstrap = bootstrap;
        this.authorities = authorities;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2)
            options.put(arguments[index].substring(2), arguments[index + 1]);
        AccessProgram program = new AccessProgram(options.get("bootstrap"), options.get("ca"));
        Map<String, List<JsonNode>> cells = new LinkedHashMap<>();
        for (JsonNode cell : JSON.readTree(System.in))
            cells.computeIfAbsent(cell.get("identity").asText(), name -> new ArrayList<>()).add(cell);
        ExecutorService workers = Executors.newFixedThreadPool(AT_A_TIME);
        for (List<JsonNode> ofOne : cells.values())
            workers.submit(() -> ofOne.forEach(program::attempt));
        workers.shutdown();
        workers.awaitTermination(1, TimeUnit.HOURS);
    }

    private void attempt(JsonNode cell) {
        ObjectNode event = JSON.createObjectNode();
        event.put("name", "access");
        event.put("identity", cell.get("identity").asText());
        event.put("verb", cell.get("verb").asText());
        try {
            event.put("error", work(cell));
        } catch (Exception thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            event.put("error", word(cause));
            event.put("message", cause.toString());
        }
        System.out.println(event);
    }

    private static String word(Throwable thrown) {
        for (Throwable each = thrown; each != null; each = each.getCause()) {
            Errors known = Errors.forException(each);
            if (known == Errors.REQUEST_TIMED_OUT) return "NO_ANSWER";
            if (known != Errors.UNKNOWN_SERVER_ERROR) return known.name();
        }
        return thrown.getClass().getSimpleName();
    }

    private String work(JsonNode cell) throws Exception {
        String verb = cell.get("verb").asText();
        String topic = cell.get("topic").asText();
        switch (verb) {
            case "produce": return produce(cell, topic);
            case "consume": return consume(cell, topic, false);
            case "group": return consume(cell, topic, true);
            default: return administrate(cell, verb, topic);
        }
    }

    private String produce(JsonNode cell, String topic) throws Exception {
        Map<String, Object> settings = settings(cell);
        settings.put("acks", "all");
        settings.put("delivery.timeout.ms", limit(cell) + 100);
        settings.put("request.timeout.ms", limit(cell));
        settings.put("max.block.ms", limit(cell));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, "java".getBytes())).get();
            return "";
        }
    }

    private String consume(JsonNode cell, String topic, boolean inGroup) {
        Map<String, Object> settings = settings(cell);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        if (inGroup) settings.put("group.id", cell.get("group").asText());
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            if (inGroup) consumer.subscribe(List.of(topic));
            else consumer.assign(List.of(new TopicPartition(topic, 0)));
            long ends = System.nanoTime() + limit(cell) * 1_000_000L;
            while (System.nanoTime() < ends) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(200));
                if (found.isEmpty()) continue;
                if (inGroup) consumer.commitSync();
                return "";
            }
            return "NO_ANSWER";
        }
    }

    private String administrate(JsonNode cell, String verb, String topic) throws Exception {
        Map<String, Object> settings = settings(cell);
        settings.put("default.api.timeout.ms", limit(cell));
        settings.put("request.timeout.ms", limit(cell));
        try (Admin admin = Admin.create(settings)) {
            switch (verb) {
                case "list":
                    Set<String> names = admin.listTopics().names().get();
                    return names.contains(topic) ? "" : "NOT_LISTED";
                case "describe":
                    admin.describeTopics(List.of(topic)).allTopicNames().get();
                    return "";
                case "create":
                    admin.createTopics(List.of(new NewTopic(topic, 1, (short) 3))).all().get();
                    return "";
                case "alter":
                    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                    AlterConfigOp change = new AlterConfigOp(
                        new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
                    admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
                    return "";
                case "delete":
                    admin.deleteTopics(List.of(topic)).all().get();
                    return "";
                default: throw new IllegalArgumentException("expected a verb, found " + verb);
            }
        }
    }

    private static int limit(JsonNode cell) {
        return cell.hasNonNull("limit_ms") ? cell.get("limit_ms").asInt() : LIMIT_MS;
    }

    private Map<String, Object> settings(JsonNode cell) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", authorities);
        String mechanism = cell.get("mechanism").asText();
        settings.put("security.protocol", mechanism.isEmpty() ? "SSL" : "SASL_SSL");
        if (mechanism.isEmpty()) return settings;
        settings.put("sasl.mechanism", mechanism);
        if (mechanism.equals("OAUTHBEARER")) {
            settings.put("sasl.login.callback.handler.class", GivenToken.class);
            settings.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required"
                + " token=\"" + cell.get("token").asText() + "\";");
            return settings;
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        settings.put("sasl.jaas.config", MODULES + module + " required username=\""
            + cell.get("user").asText() + "\" password=\"" + cell.get("password").asText() + "\";");
        return settings;
    }

    /** Sends the token as it is: whether it is valid is for the broker to say. */
    public static class GivenToken implements AuthenticateCallbackHandler {
        private String token;

        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            token = entries.get(0).getOptions().get("token").toString();
        }

        @Override
        public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
            for (Callback each : callbacks) {
                if (each instanceof OAuthBearerTokenCallback asked) asked.token(new Given(token));
                else throw new UnsupportedCallbackException(each);
            }
        }

        @Override
        public void close() {
            // Nothing is open.
        }
    }

    record Given(String value) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return System.currentTimeMillis() + 3_600_000;
        }

        @Override
        public String principalName() {
            return "given";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}
