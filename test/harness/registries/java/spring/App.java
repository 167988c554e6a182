import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.springframework.boot.Banner;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.client.serviceregistry.AbstractAutoServiceRegistration;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * Applications that register themselves as Spring Cloud has any do it: each is a context with a client of its own. For
 * each line on standard input, "start ID PROPERTY..." or "stop ID", it does so and writes a line, true. A context that is
 * closed deregisters, as on SIGTERM.
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
      if (words[0].equals("start")) {
        running.put(words[1], start(Stream.concat(Arrays.stream(args), Arrays.stream(words).skip(2))));
      } else {
        running.remove(words[1]).close();
      }
      out.println(true);
    }
  }

  private static ConfigurableApplicationContext start(Stream<String> properties) {
    ConfigurableApplicationContext context =
        new SpringApplicationBuilder(App.class)
            .web(WebApplicationType.NONE) // what answers at the address is not part of this process
            .bannerMode(Banner.Mode.OFF)
            .registerShutdownHook(false)
            .properties("eureka.client.jersey.enabled=false") // the server's; an application does not have it
            .run(properties.toArray(String[]::new));
    // Some register when their web server has started, and here there is none.
    context.getBeansOfType(AbstractAutoServiceRegistration.class).values().forEach(AbstractAutoServiceRegistration::start);
    return context;
  }
}
