# etcd: one member. Tests start members of their own; this one is for `make services` and for trying things out. Its
# election timeout is half of the default, so that it grants leases of one second.

packages_etcd() { command -v etcd >/dev/null || echo etcd-server; }

etcd_port() { cat "$folder/etcd/port"; }

start_etcd() {
  local home=$folder/etcd client peer
  mkdir -p "$home"
  [ -s "$home/port" ] || free_port >"$home/port"
  client=http://127.0.0.1:$(etcd_port)
  peer=http://127.0.0.1:$(free_port)
  runs_etcd || spawn etcd "$home" etcd --name a --data-dir "$home/data" --listen-client-urls "$client" \
    --advertise-client-urls "$client" --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
    --initial-cluster "a=$peer" --heartbeat-interval 50 --election-timeout 500 --unsafe-no-fsync --logger zap --log-level warn
  wait_for etcd "$home" replies "$(etcd_port)" 'GET /health HTTP/1.0\r\n\r\n'
}

stop_etcd() { end "$folder/etcd/etcd.pid"; }
runs_etcd() { runs "$folder/etcd/etcd.pid"; }
urls_etcd() { echo "MAINSPRING_TEST_ETCD=etcd://127.0.0.1:$(etcd_port)"; }
