import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.springframework.boot.Banner;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * Applications that register themselves as Spring Cloud has any do it: each is a context with a client of its own. For
 * each line on standard input, "start SERVICE ADDRESS PORT" or "stop SERVICE ADDRESS PORT", it does so and writes a line,
 * true. A context that is closed deregisters, as on SIGTERM.
 */
@EnableAutoConfiguration
public class App {
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // the log goes there
    Map<String, ConfigurableApplicationContext> running = new HashMap<>();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      String id = words[1] + ":" + words[2] + ":" + words[3];
      if (words[0].equals("start")) {
        running.put(id, start(words[1], words[2], words[3], id, args));
      } else {
        running.remove(id).close();
      }
      out.println(true);
    }
  }

  private static ConfigurableApplicationContext start(
      String service, String address, String port, String id, String[] args) {
    return new SpringApplicationBuilder(App.class)
        .web(WebApplicationType.NONE) // what answers at the address is not part of this process
        .bannerMode(Banner.Mode.OFF)
        .registerShutdownHook(false)
        .properties("eureka.client.jersey.enabled=false") // the server's; an application does not have it
        .run(
            concat(
                args,
                "--spring.application.name=" + service,
                "--eureka.instance.prefer-ip-address=true",
                "--eureka.instance.ip-address=" + address,
                "--eureka.instance.non-secure-port=" + port,
                "--eureka.instance.instance-id=" + id));
  }

  private static String[] concat(String[] first, String... second) {
    String[] all = java.util.Arrays.copyOf(first, first.length + second.length);
    System.arraycopy(second, 0, all, first.length, second.length);
    return all;
  }
}
