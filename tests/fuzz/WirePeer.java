// Apache Kafka's own message classes as a peer for the codecs: one line in, lines out.
//   generate SEED API_KEY VERSION request|response COUNT   random messages, one a line, in hex
//   echo API_KEY VERSION request|response HEX              as read and written again, or "refused ..."
// Random values are made from the schemas in the classes, with nulls and tagged fields; what is
// printed has gone through the classes once, so it is as Kafka writes it.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

public class WirePeer {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            StringBuilder answer = new StringBuilder();
            if (words[0].equals("generate")) {
                Random random = new Random(Long.parseLong(words[1]));
                for (int number = Integer.parseInt(words[5]); number > 0; number--) {
                    answer.append(HEX.formatHex(generate(random, words[2], words[3], words[4]))).append('\n');
                }
            } else {
                answer.append(echo(words[1], words[2], words[3], words.length > 4 ? words[4] : "")).append('\n');
            }
            System.out.print(answer);
            System.out.flush();
        }
    }

    private static byte[] generate(Random random, String key, String version, String side) {
        ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(key));
        Schema[] schemas = side.equals("request") ? api.requestSchemas() : api.responseSchemas();
        Struct struct = struct(random, schemas[Short.parseShort(version)]);
        ByteBuffer raw = ByteBuffer.allocate(struct.sizeOf());
        struct.writeTo(raw);
        return reread(api, Short.parseShort(version), side, raw.flip());
    }

    private static String echo(String key, String version, String side, String hex) {
        try {
            ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(key));
            ByteBuffer raw = ByteBuffer.wrap(HEX.parseHex(hex));
            byte[] again = reread(api, Short.parseShort(version), side, raw);
            return raw.hasRemaining() ? "refused: " + raw.remaining() + " bytes left" : HEX.formatHex(again);
        } catch (RuntimeException error) {
            return "refused: " + String.valueOf(error.getMessage()).replace('\n', ' ');
        }
    }

    private static byte[] reread(ApiMessageType api, short version, String side, ByteBuffer raw) {
        ApiMessage message = side.equals("request") ? api.newRequest() : api.newResponse();
        message.read(new ByteBufferAccessor(raw), version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        return written.array();
    }

    private static Object value(Random random, Type type) {
        if (type.isNullable() && random.nextInt(4) == 0) return null;
        if (type instanceof Schema schema) return struct(random, schema);
        if (type instanceof TaggedFields tagged) return tags(random, tagged);
        if (type.isArray()) {
            Object[] elements = new Object[random.nextInt(4)];
            for (int place = 0; place < elements.length; place++) {
                elements[place] = value(random, type.arrayElementType().get());
            }
            return elements;
        }
        String name = type.toString();
        if (name.endsWith("STRING")) return text(random);
        if (name.endsWith("RECORDS")) return MemoryRecords.readableRecords(bytes(random));
        if (name.endsWith("BYTES")) return bytes(random);
        return switch (name) {
            case "BOOLEAN" -> random.nextBoolean();
            case "INT8" -> (byte) random.nextInt();
            case "INT16" -> (short) random.nextInt();
            case "UINT16" -> random.nextInt(65536);
            case "INT32" -> random.nextInt();
            case "UINT32" -> random.nextInt() & 0xFFFFFFFFL;
            case "INT64" -> random.nextLong();
            case "FLOAT64" -> random.nextDouble();
            case "UUID" -> new Uuid(random.nextLong(), random.nextLong());
            default -> throw new IllegalStateException("no random " + name);
        };
    }

    private static Struct struct(Random random, Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            struct.set(field, value(random, field.def.type));
        }
        return struct;
    }

    private static Map<Integer, Object> tags(Random random, TaggedFields tagged) {
        TreeMap<Integer, Object> found = new TreeMap<>();
        for (Map.Entry<Integer, Field> entry : tagged.fields().entrySet()) {
            if (random.nextBoolean()) found.put(entry.getKey(), value(random, entry.getValue().type));
        }
        return found;
    }

    private static String text(Random random) {
        int kind = random.nextInt(8);
        if (kind == 0) return "";
        if (kind == 1) return "é世😀".repeat(1 + random.nextInt(60));
        return "t" + random.nextInt(1000000);
    }

    private static ByteBuffer bytes(Random random) {
        byte[] found = new byte[random.nextInt(4) == 0 ? random.nextInt(300) : random.nextInt(20)];
        random.nextBytes(found);
        return ByteBuffer.wrap(found);
    }
}
