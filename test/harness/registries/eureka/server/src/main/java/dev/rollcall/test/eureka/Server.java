package dev.rollcall.test.eureka;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.netflix.eureka.server.EnableEurekaServer;

/** A Eureka server as Spring's guide writes it. */
@SpringBootApplication
@EnableEurekaServer
public class Server {
  public static void main(String[] args) {
    SpringApplication.run(Server.class, args);
  }
}
