import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.springframework.boot.Banner;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.cloud.loadbalancer.core.ServiceInstanceListSupplier;
import org.springframework.cloud.loadbalancer.support.LoadBalancerClientFactory;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * A client as any Spring application has it. For each line on standard input, a service's name, it writes one with the
 * instances that the application would get, as JSON. With "SERVICE balanced" they are those of Spring Cloud LoadBalancer.
 */
@EnableAutoConfiguration
public class Reader {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // the log goes there
    SpringApplicationBuilder application =
        new SpringApplicationBuilder(Reader.class)
            .web(WebApplicationType.NONE)
            .bannerMode(Banner.Mode.OFF)
            .properties(
                "spring.cloud.service-registry.auto-registration.enabled=false", // it only reads
                "eureka.client.jersey.enabled=false"); // the server's; an application does not have it
    try (ConfigurableApplicationContext context = application.run(args)) {
      DiscoveryClient client = context.getBean(DiscoveryClient.class);
      BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        out.println(JSON.writeValueAsString(
            described(words.length == 1 ? client.getInstances(words[0]) : balanced(context, words[0]))));
      }
    }
  }

  private static List<ServiceInstance> balanced(ConfigurableApplicationContext context, String service) {
    return context
        .getBean(LoadBalancerClientFactory.class)
        .getInstance(service, ServiceInstanceListSupplier.class)
        .get()
        .blockFirst();
  }

  private static List<Map<String, Object>> described(List<ServiceInstance> found) {
    List<Map<String, Object>> instances = new ArrayList<>();
    for (ServiceInstance instance : found) {
      // A URI that can't be parsed whole has no host: no client could connect to it.
      String host = instance.getUri().getHost();
      String id = instance.getInstanceId(); // Nacos has none for a persistent instance
      instances.add(
          Map.of(
              "id", id == null ? "" : id,
              "serviceId", instance.getServiceId(),
              "uri", instance.getUri().toString(),
              "uriHost", host == null ? "" : host,
              "secure", instance.isSecure(),
              "metadata", instance.getMetadata()));
    }
    return instances;
  }
}
