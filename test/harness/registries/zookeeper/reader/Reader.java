import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;
import org.springframework.cloud.loadbalancer.core.ServiceInstanceListSupplier;
import org.springframework.cloud.zookeeper.discovery.ZookeeperDiscoveryClient;
import org.springframework.cloud.zookeeper.discovery.ZookeeperInstance;
import org.springframework.cloud.zookeeper.discovery.ZookeeperServiceInstanceListSupplier;
import org.springframework.cloud.zookeeper.discovery.dependency.ZookeeperDependencies;
import reactor.core.publisher.Flux;

/**
 * What real readers see: Curator's service discovery, and Spring Cloud's on top of it. It answers one JSON array per line
 * (a question, the connection string, base path and payload class that the reader should be made with, and arguments) with
 * one JSON object.
 */
public class Reader {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int HEAD = 4;

  private final Map<String, CuratorFramework> clients = new HashMap<>();
  private final Map<String, Asked<?>> readers = new HashMap<>();

  public static void main(String[] args) throws Exception {
    Reader reader = new Reader();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Map<String, Object> answer = new LinkedHashMap<>();
      try {
        String[] question = JSON.readValue(line, String[].class);
        answer.put("answer", reader.with(question).answer(question[0], question));
      } catch (Exception | LinkageError e) {
        answer.put("error", e.toString());
      }
      System.out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
      System.out.flush();
    }
    System.exit(0);
  }

  private Asked<?> with(String[] question) throws Exception {
    CuratorFramework client = clients.get(question[1]);
    if (client == null) {
      client = CuratorFrameworkFactory.newClient(question[1], new RetryNTimes(50, 200));
      client.start();
      client.blockUntilConnected();
      clients.put(question[1], client);
    }
    String key = String.join(" ", question[1], question[2], question[3]);
    Asked<?> reader = readers.get(key);
    if (reader == null) {
      reader = new Asked<>(client, question[2], Class.forName(question[3]));
      readers.put(key, reader);
    }
    return reader;
  }

  private static final class Asked<T> {
    private final CuratorFramework client;
    private final Class<T> payload;
    private final String base;
    private final ServiceDiscovery<T> discovery;
    private final Map<String, ServiceProvider<T>> providers = new HashMap<>();

    Asked(CuratorFramework client, String base, Class<T> payload) throws Exception {
      this.client = client;
      this.payload = payload;
      this.base = base;
      discovery = ServiceDiscoveryBuilder.builder(payload).client(client).basePath(base).build();
      discovery.start();
    }

    private Object answer(String question, String[] args) throws Exception {
      switch (question) {
        case "names":
          return discovery.queryForNames();
        case "instances":
          return show(discovery.queryForInstances(args[HEAD]));
        case "provider":
          return show(provider(args[HEAD]).getAllInstances());
        case "spring":
          return spring(args[HEAD]);
        case "register":
          return register(args[HEAD], args[HEAD + 1]);
        case "again":
          return again(args[HEAD], args[HEAD + 1], Boolean.parseBoolean(args[HEAD + 2]));
        default:
          throw new IllegalArgumentException("no such question");
      }
    }

    private ServiceProvider<T> provider(String service) throws Exception {
      ServiceProvider<T> provider = providers.get(service);
      if (provider == null) {
        provider = discovery.serviceProviderBuilder().serviceName(service).build();
        provider.start();
        providers.put(service, provider);
      }
      return provider;
    }

    private static <T> List<Map<String, Object>> show(Collection<ServiceInstance<T>> instances) {
      List<Map<String, Object>> shown = new ArrayList<>();
      for (ServiceInstance<T> i : instances) {
        Map<String, Object> one = new LinkedHashMap<>();
        one.put("name", i.getName());
        one.put("id", i.getId());
        one.put("address", i.getAddress());
        one.put("port", i.getPort());
        one.put("uri", i.buildUriSpec());
        one.put("type", i.getServiceType());
        one.put("enabled", i.isEnabled());
        one.put("payload", i.getPayload());
        shown.add(one);
      }
      return shown;
    }

    /** Asks as Spring Cloud's load balancer does: what its discovery client finds, through its filter by status. */
    @SuppressWarnings("unchecked")
    private Object spring(String service) {
      ZookeeperDiscoveryClient spring =
          new ZookeeperDiscoveryClient((ServiceDiscovery<ZookeeperInstance>) discovery, null, null);
      ServiceInstanceListSupplier all = new ServiceInstanceListSupplier() {
        @Override
        public String getServiceId() {
          return service;
        }

        @Override
        public Flux<List<org.springframework.cloud.client.ServiceInstance>> get() {
          return Flux.just(spring.getInstances(service));
        }
      };
      List<Map<String, Object>> shown = new ArrayList<>();
      for (org.springframework.cloud.client.ServiceInstance i :
          new ZookeeperServiceInstanceListSupplier(all, new ZookeeperDependencies()).get().blockFirst()) {
        Map<String, Object> one = new LinkedHashMap<>();
        one.put("id", i.getInstanceId());
        one.put("address", i.getHost());
        one.put("port", i.getPort());
        one.put("uri", i.getUri().toString());
        one.put("metadata", i.getMetadata());
        shown.add(one);
      }
      return shown;
    }

    /** Registers an instance of Curator's own, which lives as long as this process, and returns what Curator wrote. */
    private String register(String service, String id) throws Exception {
      discovery.registerService(ServiceInstance.<T>builder().name(service).id(id).address("192.0.2.1").port(80)
          .serviceType(ServiceType.DYNAMIC).uriSpec(new UriSpec("{scheme}://{address}:{port}")).build());
      return new String(client.getData().forPath(base + "/" + service + "/" + id), StandardCharsets.UTF_8);
    }

    /** Returns an entry as it is, and as Curator writes it again. */
    private List<String> again(String service, String id, boolean compatible) throws Exception {
      JsonInstanceSerializer<T> serializer = new JsonInstanceSerializer<>(payload, compatible);
      byte[] written = client.getData().forPath(base + "/" + service + "/" + id);
      return List.of(new String(written, StandardCharsets.UTF_8),
          new String(serializer.serialize(serializer.deserialize(written)), StandardCharsets.UTF_8));
    }
  }
}
