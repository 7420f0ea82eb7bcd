import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The query on Flink: for each record its key's newest and count, with keyed state in RocksDB. End of stdin ends it.
 * Arguments: servers, source, sink, parallelism of the state, then Flink's own settings as key=value.
 */
public class TotalsJob {
  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Settings.of(args, 4));
    KafkaSource<Tuple2<String, Long>> source = KafkaSource.<Tuple2<String, Long>>builder()
        .setBootstrapServers(args[0]).setTopics(args[1]).setStartingOffsets(OffsetsInitializer.earliest())
        .setDeserializer(new Read()).build();
    KafkaSink<Tuple2<String, String>> sink = KafkaSink.<Tuple2<String, String>>builder()
        .setBootstrapServers(args[0]).setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .setProperty("linger.ms", "0").setRecordSerializer(new Write(args[2])).build();
    env.fromSource(source, WatermarkStrategy.noWatermarks(), "in").setParallelism(2)
        .keyBy(r -> r.f0).process(new Totals()).setParallelism(Integer.parseInt(args[3]))
        .sinkTo(sink).setParallelism(Integer.parseInt(args[3]));
    JobClient job = env.executeAsync("totals");
    System.in.readAllBytes();
    job.cancel().get();
    System.exit(0);
  }

  static class Read implements KafkaRecordDeserializationSchema<Tuple2<String, Long>> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> r, Collector<Tuple2<String, Long>> out) {
      out.collect(Tuple2.of(new String(r.key()), Long.parseLong(new String(r.value()))));
    }

    @Override
    public TypeInformation<Tuple2<String, Long>> getProducedType() {
      return Types.TUPLE(Types.STRING, Types.LONG);
    }
  }

  static class Totals extends KeyedProcessFunction<String, Tuple2<String, Long>, Tuple2<String, String>> {
    private transient ValueState<Tuple2<Long, Long>> held;

    @Override
    public void open(OpenContext context) {
      held = getRuntimeContext().getState(new ValueStateDescriptor<>("held", Types.TUPLE(Types.LONG, Types.LONG)));
    }

    @Override
    public void processElement(Tuple2<String, Long> record, Context context, Collector<Tuple2<String, String>> out) throws Exception {
      Tuple2<Long, Long> before = held.value();
      long n = before == null ? 1 : before.f0 + 1;
      long most = before == null ? record.f1 : Math.max(before.f1, record.f1);
      held.update(Tuple2.of(n, most));
      out.collect(Tuple2.of(record.f0, "{\"n\":" + n + ",\"most\":" + most + "}"));
    }
  }

  static class Write implements KafkaRecordSerializationSchema<Tuple2<String, String>> {
    private final String topic;

    Write(String topic) {
      this.topic = topic;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Tuple2<String, String> row, KafkaSinkContext context, Long timestamp) {
      return new ProducerRecord<>(topic, row.f0.getBytes(), row.f1.getBytes());
    }
  }
}
