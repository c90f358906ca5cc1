# Kafka: nodes that are brokers and controllers, one unless MAINSPRING_KAFKA_NODES says more when they are made.
# MAINSPRING_KAFKA_EXTRA adds lines to the configuration of new nodes. With MAINSPRING_KAFKA_PEM, a file with a key and its
# certificate, nodes also listen with TLS and SASL, for the same user and password as the other servers; clients are sent
# to the ports of MAINSPRING_KAFKA_PROXIES, one for each node, where it is given.

packages_kafka() { packages_java kafka; }
fetch_kafka() { fetch_java kafka; }

kafka_nodes() { ls -d "$folder"/kafka/*/ 2>/dev/null || true; }
kafka_ports() { sed -n 's/^advertised.listeners=PLAINTEXT:\/\/127.0.0.1:\([0-9]*\).*/\1/p' "$folder"/kafka/*/server.properties; }

# After kill -9 the controllers wait for the old session of a broker to end: the sessions and elections below are short.
configure_kafka() {
  [ -d "$folder/kafka/1" ] && return
  local nodes=${MAINSPRING_KAFKA_NODES:-1} number home voters='' controllers=()
  for number in $(seq "$nodes"); do
    controllers[number]=$(free_port)
    voters+=${voters:+,}$number@127.0.0.1:${controllers[number]}
  done
  for number in $(seq "$nodes"); do
    home=$folder/kafka/$number
    mkdir -p "$home"
    local port
    port=$(free_port)
    local secure='' named='' secure_port proxies
    if [ -n "${MAINSPRING_KAFKA_PEM:-}" ]; then
      secure_port=$(free_port)
      read -ra proxies <<<"${MAINSPRING_KAFKA_PROXIES:-}"
      secure=,SASL_SSL://127.0.0.1:$secure_port
      named=,SASL_SSL://127.0.0.1:${proxies[number - 1]:-$secure_port}
    fi
    cat >"$home/log4j2.properties" <<CONF
appender.file.type = File
appender.file.name = file
appender.file.fileName = $home/server.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
CONF
    cat >"$home/server.properties" <<CONF
process.roles=broker,controller
node.id=$number
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:${controllers[number]}$secure
advertised.listeners=PLAINTEXT://127.0.0.1:$port$named
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$home/data
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=$nodes
transaction.state.log.replication.factor=$nodes
transaction.state.log.min.isr=$(((nodes + 1) / 2))
share.coordinator.state.topic.replication.factor=$nodes
share.coordinator.state.topic.min.isr=$(((nodes + 1) / 2))
default.replication.factor=$nodes
min.insync.replicas=$(((nodes + 1) / 2))
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
controller.quorum.election.timeout.ms=500
controller.quorum.fetch.timeout.ms=1000
controller.quorum.election.backoff.max.ms=300
log.cleaner.dedupe.buffer.size=4194304
${MAINSPRING_KAFKA_EXTRA:-}
CONF
    [ -z "$secure" ] || cat >>"$home/server.properties" <<CONF
ssl.keystore.type=PEM
ssl.keystore.location=$MAINSPRING_KAFKA_PEM
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_$user="$password";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
CONF
  done
}

start_kafka() {
  local home java port
  configure_kafka
  export CLASSPATH
  CLASSPATH="$(jars_of kafka)/*"
  for home in $(kafka_nodes); do
    java="java -Xms64m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=${home}log4j2.properties"
    [ -e "${home}data/meta.properties" ] ||
      $java kafka.tools.StorageTool format -t 4L6g3nShT-eMCtK--X86sw -c "${home}server.properties" \
        --add-scram "SCRAM-SHA-512=[name=$user,password=$password]" >"${home}format.out"
    runs "${home}kafka.pid" || spawn kafka "${home%/}" $java kafka.Kafka "${home}server.properties"
  done
  # An ApiVersions request, version 0, with an empty client id: a broker answers it once it takes requests.
  for port in $(kafka_ports); do wait_until replies "$port" '\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00'; done
}

stop_kafka() { for home in $(kafka_nodes); do end "${home}kafka.pid" & done; wait; }
runs_kafka() {
  [ -n "$(kafka_nodes)" ] || return 1
  for home in $(kafka_nodes); do runs "${home}kafka.pid" || return 1; done
}
urls_kafka() { echo "MAINSPRING_TEST_KAFKA=kafka://$(kafka_ports | sed 's/^/127.0.0.1:/' | paste -sd,)"; }
