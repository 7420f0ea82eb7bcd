import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.plugin.PluginUtils;

/** Flink's own settings, as key=value from one argument on; with them its file systems are there. */
final class Settings {
  private Settings() {}

  static Configuration of(String[] args, int first) {
    Configuration conf = new Configuration();
    for (int i = first; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      conf.setString(pair[0], pair[1]);
    }
    FileSystem.initialize(conf, PluginUtils.createPluginManagerFromRootFolder(conf));
    return conf;
  }
}
