// Writes what Apache Kafka's own classes say of topic configs: one JSON line for each pair of a
// config and a value, with the parsed value as Kafka writes it, or null where it refuses the value.
// The unit tests read the table; run this after a new version in pom.xml:
//   java -cp "$(hack/kafka/jars)/*" hack/kafka/TopicConfigTable.java > tests/unit/operator/topic_admin/kafka_topic_configs.jsonl

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

public class TopicConfigTable {
    static final ObjectMapper JSON = new ObjectMapper();
    static final List<String> NUMBERS = List.of(
        "0", "1", "-1", "-2", "+5", "-0", "007", " 86400000 ", "\t10\n", "9223372036854775807",
        "9223372036854775808", "-9223372036854775808", "2147483647", "2147483648", "3153600000001",
        "1023", "1024", "8388608", "8388609", "1048576", "1048577", "16383", "16384", "1000000",
        "60000", " +060000 ", "10485760",
        "", " ", "+", "-", "1_000", "1,000", "1 000", "10L", "1e3", "0x10", "5.0", "true", "null",
        "\u0663", "\u00a05");
    static final List<String> DOUBLES = List.of(
        "0", "1", "0.5", "+0.5", "-0.0", "-0.1", "1.1", ".5", "1.", "0.1234567", "5e-1", "5E-1",
        "0.5d", "0.5F", " 0.5 ", "1e400", "1e-400", "0x1p-1", "NaN", "Infinity", "", "half", "0,5");
    static final List<String> BOOLEANS = List.of(
        "true", "false", "True", "FALSE", " true ", "\tfalse\n", "yes", "1", "0", "", "tru", "null");
    static final List<String> WORDS = List.of(
        "delete", "compact", "compact,delete", "delete,compact", "compact, delete", " delete ",
        "delete ,\tcompact", "Delete", "COMPACT", "delete,delete", "compact,delete,compact", "",
        " ", ",", "delete,", ",delete", "delete,,compact", "none", "delete;compact", "delete compact",
        "CreateTime", "LogAppendTime", " CreateTime ", "createtime", "LOGAPPENDTIME", "NoTimestampType",
        "producer", " producer ", "Producer", "PRODUCER", "gzip", "GZIP", "uncompressed", "lz4",
        "*", "0:1,1:2", "0:1", "0:1, 1:2", "x");

    public static void main(String[] arguments) throws Exception {
        for (String name : new TreeSet<>(LogConfig.configNames())) {
            for (String value : values(LogConfig.configType(name).get())) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("name", name);
                row.put("value", value);
                row.put("kafka", parsed(name, value));
                System.out.println(JSON.writeValueAsString(row));
            }
        }
        List<List<String>> lags = List.of(
            List.of("0", "1"), List.of("1", "1"), List.of("2", "1"), List.of("10", "+9"),
            List.of("9223372036854775807", "9223372036854775806"));
        for (List<String> lag : lags) {
            Map<String, String> config = new TreeMap<>();
            config.put("min.compaction.lag.ms", lag.get(0));
            config.put("max.compaction.lag.ms", lag.get(1));
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("config", config);
            row.put("takes", takes(config));
            System.out.println(JSON.writeValueAsString(row));
        }
    }

    static Set<String> values(ConfigDef.Type type) {
        return new LinkedHashSet<>(switch (type) {
            case INT, LONG -> NUMBERS;
            case DOUBLE -> DOUBLES;
            case BOOLEAN -> BOOLEANS;
            default -> WORDS;
        });
    }

    static String parsed(String name, String value) {
        if (!takes(Map.of(name, value))) return null;
        ConfigDef.Type type = LogConfig.configType(name).get();
        Object parsed = ConfigDef.parseType(name, value, type);
        return ConfigDef.convertToString(parsed, type);
    }

    static boolean takes(Map<String, String> config) {
        try {
            LogConfig.validate(Map.of(), config, Map.of(), false);
            return true;
        } catch (RuntimeException refused) {
            return false;
        }
    }
}
