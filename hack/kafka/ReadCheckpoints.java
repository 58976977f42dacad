// Reads the small files of data directories with the classes that a Kafka broker loads them with:
// offset checkpoints, leader epochs, partition.metadata, producer snapshots, the clean stop.
//   java -cp "$(hack/kafka/jars)/*" hack/kafka/ReadCheckpoints.java DATA_DIRECTORY...
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

public class ReadCheckpoints {
    private static final List<String> CHECKPOINTS = List.of(
        "replication-offset-checkpoint", "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint", "cleaner-offset-checkpoint");
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(10);
    private static int failed = 0;
    private static int read = 0;

    interface Reading {
        String read() throws Exception;
    }

    public static void main(String[] directories) throws Exception {
        for (String directory : directories) {
            Path path = Path.of(directory);
            for (String name : CHECKPOINTS) {
                File file = path.resolve(name).toFile();
                if (file.exists()) attempt(file, () -> offsets(file));
            }
            CleanShutdownFileHandler stop = new CleanShutdownFileHandler(directory);
            if (stop.exists()) attempt(path.resolve(".kafka_cleanshutdown").toFile(), () -> epoch(stop));
            try (Stream<Path> partitions = Files.list(path)) {
                for (Path partition : partitions.filter(ReadCheckpoints::isPartition).sorted().toList()) {
                    readPartition(partition.toFile());
                }
            }
        }
        System.out.println("Kafka's classes: " + read + " checkpoints, epochs, snapshots and metadata files read");
        System.exit(failed == 0 ? 0 : 1);
    }

    private static boolean isPartition(Path path) {
        return path.getFileName().toString().matches(".*-[0-9]+")
            && Files.exists(path.resolve("partition.metadata"));
    }

    private static void readPartition(File partition) throws Exception {
        File metadata = PartitionMetadataFile.newFile(partition);
        attempt(metadata, () -> new PartitionMetadataFile(metadata, FAILURES).read().topicId().toString());
        File epochs = LeaderEpochCheckpointFile.newFile(partition);
        if (epochs.exists()) attempt(epochs, () -> epochs(epochs));
        for (File snapshot : partition.listFiles((parent, name) -> name.endsWith(".snapshot"))) {
            attempt(snapshot, () -> producers(snapshot));
        }
    }

    private static String offsets(File file) throws Exception {
        Map<TopicPartition, Long> found = new OffsetCheckpointFile(file, FAILURES).read();
        for (Map.Entry<TopicPartition, Long> entry : found.entrySet()) {
            if (entry.getValue() < 0) throw new IllegalStateException("negative: " + entry);
        }
        return found.toString();
    }

    private static String epoch(CleanShutdownFileHandler stop) {
        return "broker epoch " + stop.read().orElseThrow();
    }

    private static String epochs(File file) throws Exception {
        List<EpochEntry> found = new LeaderEpochCheckpointFile(file, FAILURES).read();
        for (int next = 1; next < found.size(); next++) {
            EpochEntry before = found.get(next - 1);
            EpochEntry after = found.get(next);
            if (after.epoch() <= before.epoch() || after.startOffset() < before.startOffset()) {
                throw new IllegalStateException("not rising: " + found);
            }
        }
        return found.toString();
    }

    private static String producers(File file) throws Exception {
        List<ProducerStateEntry> found = ProducerStateManager.readSnapshot(file);
        return found.size() + " producers";
    }

    private static void attempt(File file, Reading reading) {
        try {
            String found = reading.read();
            read++;
            if (System.getenv("TELL") != null) System.out.println(file + ": " + found);
        } catch (Exception error) {
            failed++;
            System.out.println("--- " + file + "\n" + error);
        }
    }
}
