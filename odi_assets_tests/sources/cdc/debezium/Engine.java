import com.sun.management.OperatingSystemMXBean;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedWriter;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine, which runs until it has seen a number of changes, or a change of a table that ends the run.
 *
 * <p>{@code Engine SETTINGS count CHANGES} prints the CPU seconds of the process from the start of the connector's task to
 * the last change, without making JSON of the changes. {@code Engine SETTINGS messages TABLE FILE} writes each message
 * into a file, a line each, up to the first one of the table.
 */
public final class Engine {
    private static final CountDownLatch ENDED = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        switch (arguments[1]) {
            case "count" -> count(settings, Long.parseLong(arguments[2]));
            case "messages" -> messages(settings, arguments[2], Path.of(arguments[3]));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    private static void count(Properties settings, long wanted) throws Exception {
        AtomicLong began = new AtomicLong(), seen = new AtomicLong(), spent = new AtomicLong();
        DebeziumEngine.ConnectorCallback started = new DebeziumEngine.ConnectorCallback() {
            @Override
            public void taskStarted() {
                began.set(cpuNanoseconds());
            }
        };
        DebeziumEngine.ChangeConsumer<ChangeEvent<SourceRecord, SourceRecord>> consumer = (batch, committer) -> {
            for (ChangeEvent<SourceRecord, SourceRecord> event : batch) {
                committer.markProcessed(event);
            }
            committer.markBatchFinished();
            if (seen.addAndGet(batch.size()) >= wanted && ENDED.getCount() > 0) {
                spent.set(cpuNanoseconds() - began.get());
                ENDED.countDown();
            }
        };
        run(DebeziumEngine.create(Connect.class).using(settings).using(started).notifying(consumer), settings);
        System.out.printf("{\"changes\": %d, \"cpu_seconds\": %.3f}%n", seen.get(), spent.get() / 1e9);
    }

    private static void messages(Properties settings, String last, Path file) throws Exception {
        try (BufferedWriter lines = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
            run(DebeziumEngine.create(Json.class).using(settings).notifying(event -> {
                if (ENDED.getCount() == 0) {
                    return;
                }
                if (event.destination().endsWith("." + last)) {
                    ENDED.countDown();
                    return;
                }
                try {
                    String topic = "\"" + event.destination() + "\"";
                    lines.write("{\"topic\": " + topic + ", \"key\": " + event.key() + ", \"value\": " + event.value() + "}\n");
                } catch (java.io.IOException error) {
                    throw new java.io.UncheckedIOException(error);
                }
            }), settings);
        }
    }

    /** Runs an engine until {@link #ENDED}, or until it ends by itself: then it says why, and the process fails. */
    private static <R> void run(DebeziumEngine.Builder<R> builder, Properties settings) throws Exception {
        String[] failure = new String[1];
        DebeziumEngine<R> engine = builder.using((success, message, error) -> {
            if (ENDED.getCount() > 0) {
                failure[0] = message + (error == null ? "" : ": " + error);
                ENDED.countDown();
            }
        }).build();
        Thread thread = new Thread(engine);
        thread.start();
        ENDED.await();
        engine.close();
        thread.join();
        if (failure[0] != null) {
            throw new IllegalStateException(failure[0]);
        }
    }

    private static long cpuNanoseconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
