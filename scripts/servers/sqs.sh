# ElasticMQ, which speaks the protocol of SQS. It keeps all messages in memory.

packages_sqs() { packages_java sqs; }
fetch_sqs() { fetch_java sqs; }

sqs_port() { sed -n 's/.*bind-port = \([0-9]*\).*/\1/p' "$folder/sqs/elasticmq.conf"; }

start_sqs() {
  local home=$folder/sqs port
  if [ ! -s "$home/elasticmq.conf" ]; then
    mkdir -p "$home"
    port=$(free_port)
    cat >"$home/elasticmq.conf" <<CONF
include classpath("application.conf")
generate-node-address = false
node-address { protocol = http, host = 127.0.0.1, port = $port, context-path = "" }
rest-sqs { enabled = true, bind-hostname = "127.0.0.1", bind-port = $port, sqs-limits = strict }
rest-stats { enabled = false }
CONF
  fi
  runs_sqs || CLASSPATH="$(jars_of sqs)/*" spawn sqs "$home" java -Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dconfig.file="$home/elasticmq.conf" org.elasticmq.server.Main
  wait_for sqs "$home" replies "$(sqs_port)" 'GET /health HTTP/1.0\r\n\r\n'
}

stop_sqs() { end "$folder/sqs/sqs.pid"; }
runs_sqs() { runs "$folder/sqs/sqs.pid"; }
urls_sqs() { echo "MAINSPRING_TEST_SQS=sqs://key:secret@local?endpoint=http://127.0.0.1:$(sqs_port)"; }
