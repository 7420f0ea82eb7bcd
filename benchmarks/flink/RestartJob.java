import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * 1 KiB of state for each of so many keys: as fast as can be until every key was seen, and then few records a second. A job that is
 * restored past that fails where a key has no state. End of stdin ends it.
 * Arguments: keys, parallelism of the state, then Flink's own settings as key=value.
 */
public class RestartJob {
  private static final int BYTES = 1024;
  private static final long PAUSE_MS = 10;

  public static void main(String[] args) throws Exception {
    System.err.println("BEGAN " + System.currentTimeMillis());
    long keys = Long.parseLong(args[0]);
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Settings.of(args, 2));
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1)
        .map(new Paced(keys)).setParallelism(1)
        .keyBy(n -> n % keys).process(new Values(keys)).setParallelism(Integer.parseInt(args[1]))
        .sinkTo(new DiscardingSink<Long>()).setParallelism(1);
    env.executeAsync("values");
    System.in.readAllBytes();
    System.exit(0);
  }

  static class Paced extends RichMapFunction<Long, Long> {
    private final long keys;
    private transient boolean told;

    Paced(long keys) {
      this.keys = keys;
    }

    @Override
    public Long map(Long n) throws Exception {
      if (!told) {
        System.err.println("FIRST " + n);
        told = true;
      }
      if (n == keys) {
        System.err.println("FILLED " + System.currentTimeMillis());
      }
      if (n >= keys) {
        Thread.sleep(PAUSE_MS);
      }
      return n;
    }
  }

  static class Values extends KeyedProcessFunction<Long, Long, Long> {
    private final long keys;
    private transient ValueState<byte[]> held;

    Values(long keys) {
      this.keys = keys;
    }

    @Override
    public void open(OpenContext context) {
      held = getRuntimeContext().getState(new ValueStateDescriptor<>("held", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
    }

    @Override
    public void processElement(Long n, Context context, Collector<Long> out) throws Exception {
      if (n >= keys && held.value() == null) {
        throw new IllegalStateException("the state of key " + n % keys + " is not there");
      }
      byte[] value = new byte[BYTES];
      new java.util.Random(n).nextBytes(value);
      held.update(value);
      out.collect(n);
    }
  }
}
