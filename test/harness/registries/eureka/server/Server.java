import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.netflix.eureka.server.EnableEurekaServer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Profile;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.annotation.web.configurers.AbstractHttpConfigurer;
import org.springframework.security.crypto.password.NoOpPasswordEncoder;
import org.springframework.security.crypto.password.PasswordEncoder;
import org.springframework.security.web.SecurityFilterChain;

/** A Eureka server as Spring's guide writes it. */
@EnableAutoConfiguration
@EnableEurekaServer
public class Server {
  public static void main(String[] args) {
    SpringApplication.run(Server.class, args);
  }

  /** With the profile auth, every request needs the user and password of spring.security.user. */
  @Bean
  @Profile("auth")
  SecurityFilterChain everythingNeedsAPassword(HttpSecurity http) throws Exception {
    return http
        .csrf(AbstractHttpConfigurer::disable)
        .authorizeHttpRequests(requests -> requests.anyRequest().authenticated())
        .httpBasic(Customizer.withDefaults())
        .build();
  }

  /** The default one takes a tenth of a second of each request. */
  @Bean
  @Profile("auth")
  @SuppressWarnings("deprecation") // it is not for passwords that are worth something
  PasswordEncoder plain() {
    return NoOpPasswordEncoder.getInstance();
  }
}
