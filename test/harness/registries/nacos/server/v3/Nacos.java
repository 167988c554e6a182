import com.alibaba.nacos.NacosServerBasicApplication;
import com.alibaba.nacos.NacosServerWebApplication;
import com.alibaba.nacos.core.listener.startup.NacosStartUp;
import com.alibaba.nacos.core.listener.startup.NacosStartUpManager;
import com.alibaba.nacos.sys.env.DeploymentType;
import com.alibaba.nacos.sys.env.EnvUtil;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;

/**
 * Starts a Nacos 3 server without its console, as with nacos.deployment.type=server. The module bootstrap, which does that
 * otherwise, is in no repository.
 */
public class Nacos {
  public static void main(String[] args) {
    EnvUtil.setDeploymentType(DeploymentType.SERVER);
    NacosStartUpManager.start(NacosStartUp.CORE_START_UP_PHASE);
    var core =
        new SpringApplicationBuilder(NacosServerBasicApplication.class).web(WebApplicationType.NONE).run(args);
    NacosStartUpManager.start(NacosStartUp.WEB_START_UP_PHASE);
    new SpringApplicationBuilder(NacosServerWebApplication.class).parent(core).run(args);
  }
}
