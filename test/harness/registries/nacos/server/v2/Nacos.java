import com.alibaba.nacos.api.annotation.NacosApi;
import com.alibaba.nacos.api.exception.api.NacosApiException;
import com.alibaba.nacos.api.exception.runtime.NacosRuntimeException;
import com.alibaba.nacos.api.model.v2.ErrorCode;
import com.alibaba.nacos.api.model.v2.Result;
import com.alibaba.nacos.core.code.ControllerMethodsCache;
import com.alibaba.nacos.plugin.auth.exception.AccessException;
import com.alibaba.nacos.sys.filter.NacosTypeExcludeFilter;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.FilterType;
import org.springframework.core.annotation.Order;
import org.springframework.http.ResponseEntity;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;

/**
 * Starts a Nacos 2 server made of its modules core, naming, config and the default auth plugin. The module console, which
 * starts them otherwise, is in no repository; what it adds to the API is below.
 */
@EnableAutoConfiguration
@EnableScheduling
@ComponentScan(
    basePackages = "com.alibaba.nacos",
    excludeFilters = @ComponentScan.Filter(type = FilterType.CUSTOM, classes = NacosTypeExcludeFilter.class))
public class Nacos {
  public static void main(String[] args) {
    SpringApplication.run(Nacos.class, args);
  }

  /** Without it no request is checked for its token and its parameters. */
  @Bean
  SmartInitializingSingleton knownMethods(ControllerMethodsCache methods) {
    return () -> {
      methods.initClassMethod("com.alibaba.nacos.core.controller");
      methods.initClassMethod("com.alibaba.nacos.naming.controllers");
      methods.initClassMethod("com.alibaba.nacos.config.server.controller");
    };
  }

  @Bean
  RefusedLogin refusedLogin() {
    return new RefusedLogin();
  }

  @Bean
  EnvelopedErrors envelopedErrors() {
    return new EnvelopedErrors();
  }

  /** A wrong password is 403 with its reason as text. */
  @RestControllerAdvice
  static class RefusedLogin {
    @ExceptionHandler(AccessException.class)
    ResponseEntity<String> refused(AccessException e) {
      return ResponseEntity.status(403).body(e.getErrMsg());
    }
  }

  /** The errors of v2 stand in the same envelope as its answers. */
  @Order(-1)
  @RestControllerAdvice(annotations = NacosApi.class)
  static class EnvelopedErrors {
    @ExceptionHandler(NacosApiException.class)
    ResponseEntity<Result<String>> api(NacosApiException e) {
      return ResponseEntity.status(e.getErrCode())
          .body(new Result<>(e.getDetailErrCode(), e.getErrAbstract(), e.getErrMsg()));
    }

    @ExceptionHandler(NacosRuntimeException.class)
    ResponseEntity<Result<String>> other(NacosRuntimeException e) {
      return ResponseEntity.status(e.getErrCode()).body(Result.failure(ErrorCode.SERVER_ERROR, e.getMessage()));
    }
  }
}
