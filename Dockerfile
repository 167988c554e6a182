# syntax=docker/dockerfile:1
FROM --platform=$BUILDPLATFORM golang:1.26.11 AS build
WORKDIR /src

# The modules have a layer of their own: most changes leave them as they are.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
# No default for the two: buildkit sets them to the platform asked for, and empty means that of the build.
ARG TARGETOS
ARG TARGETARCH
# Git is not in the build's context, so the version comes from outside; make docker-build passes it.
ARG VERSION=unknown
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} make build cas VERSION=${VERSION}

# The same image as make image writes: hack/image has a test of that.
FROM scratch
COPY --from=build /src/bin/manager /manager
COPY --from=build /src/bin/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/manager"]
