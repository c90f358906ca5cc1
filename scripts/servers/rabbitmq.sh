# RabbitMQ: one node with an epmd of its own, so that other Erlang programs of this machine are left alone.
# MAINSPRING_RABBITMQ_EXTRA adds lines to the configuration of a new node.

rabbitmq_program=/usr/lib/rabbitmq/bin/rabbitmq-server # The program on PATH changes user and folder.
packages_rabbitmq() { [ -x "$rabbitmq_program" ] || echo rabbitmq-server; }

rabbitmq_port() { sed -n 's/^listeners.tcp.1 = 127.0.0.1://p' "$folder/rabbitmq/rabbitmq.conf"; }

configure_rabbitmq() {
  local home=$folder/rabbitmq
  [ -s "$home/rabbitmq.conf" ] && return
  mkdir -p "$home/mnesia" "$home/log"
  free_port >"$home/epmd"
  free_port >"$home/dist"
  echo '[rabbitmq_prometheus].' >"$home/enabled_plugins"
  cat >"$home/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$(free_port)
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = $(free_port)
default_user = $user
default_pass = $password
log.file.level = warning
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
${MAINSPRING_RABBITMQ_EXTRA:-}
CONF
}

start_rabbitmq() {
  local home=$folder/rabbitmq
  configure_rabbitmq
  runs_rabbitmq || spawn rabbitmq "$home" env HOME="$home" LANG=C.UTF-8 RABBITMQ_NODENAME=mainspring@localhost \
    RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_ADVANCED_CONFIG_FILE="$home/none" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" RABBITMQ_MNESIA_BASE="$home/mnesia" RABBITMQ_LOG_BASE="$home/log" \
    RABBITMQ_PID_FILE="$home/pid" RABBITMQ_DIST_PORT="$(cat "$home/dist")" ERL_EPMD_PORT="$(cat "$home/epmd")" \
    ERL_EPMD_ADDRESS=127.0.0.1 ERL_CRASH_DUMP="$home/log/erl_crash.dump" RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}" \
    "$rabbitmq_program"
  wait_for rabbitmq "$home" replies "$(rabbitmq_port)" 'AMQP\x00\x00\x09\x01'
}

stop_rabbitmq() {
  [ -d "$folder/rabbitmq" ] || return 0
  end "$folder/rabbitmq/pid"
  wait_until epmd_is_gone
}

# epmd refuses to end before it has seen that the node is gone.
epmd_is_gone() {
  export ERL_EPMD_PORT
  ERL_EPMD_PORT=$(cat "$folder/rabbitmq/epmd")
  epmd -names >/dev/null 2>&1 || return 0
  epmd -kill >/dev/null 2>&1 || true
  return 1
}

runs_rabbitmq() { runs "$folder/rabbitmq/pid"; } # The node itself: the process that spawn starts is a wrapper.
urls_rabbitmq() { echo "MAINSPRING_TEST_RABBITMQ=amqp://$user:$password@127.0.0.1:$(rabbitmq_port)"; }
