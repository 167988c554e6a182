package org.example;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.registry.client.migration.MigrationInvoker;
import org.apache.dubbo.rpc.Invoker;
import org.apache.dubbo.rpc.model.FrameworkModel;

/**
 * Applications of Dubbo that do not know Rollcall. Arguments are the registry's address, and what to be:
 *
 * <p>provider waits for a line, "APPLICATION ADDRESS PORT POD QOS", registers itself as Dubbo does by default, an entry for
 * its interface and one for the application, and then writes a line, true. The interface is in a group that has the
 * application's name. At the port QOS of its address it takes commands.
 *
 * <p>consumer APPLICATION writes the port of its HTTP server, and makes a call to a provider for each POST, by the
 * interface's entries and by the application's in turn. For a GET it answers with the providers that it knows by both, and at
 * /interface with those that it knows by the interface's.
 */
public class Dubbo {
  private static final int WORK_MILLIS = 200;
  private static final int TIMEOUT_MILLIS = 5000; // of a machine with much to do

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err); // the log goes there
    if (args[1].equals("provider")) {
      FrameworkModel.defaultModel().newApplication(); // what takes longest
      String[] words = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine().split(" ");
      provide(args[0], words[0], words[1], Integer.parseInt(words[2]), words[3], Integer.parseInt(words[4]));
      out.println(true);
    } else {
      out.println(consume(args[0], args[2]));
    }
    System.in.readAllBytes(); // until the process that started this one ends
    System.exit(0);
  }

  private static DubboBootstrap bootstrap(String registry, ApplicationConfig config) {
    config.setRegisterMode("all"); // the default
    return DubboBootstrap.getInstance(new FrameworkModel().newApplication())
        .application(config)
        .registry(new RegistryConfig(registry));
  }

  private static void provide(String registry, String application, String address, int port, String pod, int qos) {
    ProtocolConfig protocol = new ProtocolConfig("dubbo", port);
    protocol.setHost(address);
    ServiceConfig<Shop> service = new ServiceConfig<>();
    service.setInterface(Shop.class);
    service.setVersion("1.0.0");
    service.setGroup(application);
    service.setRef(
        () -> {
          Thread.sleep(WORK_MILLIS);
          return pod;
        });
    ApplicationConfig config = new ApplicationConfig(application);
    config.setQosHost(address);
    config.setQosPort(qos);
    config.setQosAcceptForeignIp(true);
    config.setQosAnonymousAllowCommands("ls,offline,online");
    bootstrap(registry, config).protocol(protocol).service(service).start();
  }

  private static int consume(String registry, String application) throws IOException {
    List<ReferenceConfig<Shop>> references =
        List.of(reference(registry, application, "FORCE_INTERFACE"), reference(registry, application, "FORCE_APPLICATION"));
    AtomicInteger turn = new AtomicInteger();
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext(
        "/",
        exchange -> {
          int by = turn.getAndIncrement() % references.size();
          try {
            if (exchange.getRequestMethod().equals("GET")) {
              boolean both = exchange.getRequestURI().getPath().equals("/");
              answer(exchange, 200, json(both ? known(references) : addresses(references.get(0))));
            } else {
              answer(exchange, 200, "{\"pod\":\"" + references.get(by).get().pod() + "\"}");
            }
          } catch (Exception e) {
            answer(exchange, 502, (by == 0 ? "by the interface: " : "by the application: ") + rootOf(e));
          }
        });
    server.start();
    return server.getAddress().getPort();
  }

  private static ReferenceConfig<Shop> reference(String registry, String application, String step) {
    ReferenceConfig<Shop> reference = new ReferenceConfig<>();
    reference.setInterface(Shop.class);
    reference.setVersion("1.0.0");
    reference.setGroup(application);
    reference.setRetries(0);
    reference.setTimeout(TIMEOUT_MILLIS);
    reference.setCheck(false); // providers come later
    System.setProperty("dubbo.application.migration.step", step); // read when the bootstrap starts
    ApplicationConfig config = new ApplicationConfig("consumer");
    config.setQosEnable(false); // of all pods' machines this is one, and its port is taken
    bootstrap(registry, config).reference(reference).start();
    reference.get();
    return reference;
  }

  private static List<String> known(List<ReferenceConfig<Shop>> references) {
    List<String> known = addresses(references.get(0));
    known.retainAll(addresses(references.get(1)));
    return known;
  }

  private static List<String> addresses(ReferenceConfig<Shop> reference) {
    MigrationInvoker<?> migrating = (MigrationInvoker<?>) reference.getInvoker();
    return migrating.getDirectory().getAllInvokers().stream()
        .map(each -> ((Invoker<?>) each).getUrl().getAddress())
        .collect(Collectors.toList());
  }

  private static String rootOf(Throwable e) {
    Throwable root = e;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    return root.toString().lines().findFirst().orElse("");
  }

  private static String json(List<String> words) {
    return words.stream().map(word -> "\"" + word + "\"").collect(Collectors.joining(",", "[", "]"));
  }

  private static void answer(HttpExchange exchange, int status, String body) throws IOException {
    byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
    exchange.sendResponseHeaders(status, bytes.length);
    try (exchange) {
      exchange.getResponseBody().write(bytes);
    }
  }
}

/** What providers offer. */
interface Shop {
  String pod() throws InterruptedException;
}
