// Package eureka runs Eureka for test/registries/eureka, which proves the driver: the server that Spring's guide describes,
// built by Maven from the sources in server, and a Spring application that reads from it. They need a JDK; Maven is
// downloaded where there is none.
package eureka
