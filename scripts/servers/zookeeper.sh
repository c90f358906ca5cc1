# ZooKeeper: one server. Tests start servers of their own; this one is for `make services` and for trying things out. Its
# ticks are a tenth of the default, so that it grants sessions of 0.4 s.

zookeeper_jar=/usr/share/java/zookeeper.jar
packages_zookeeper() {
  command -v java >/dev/null || echo default-jre-headless
  [ -e "$zookeeper_jar" ] || echo zookeeper
}

zookeeper_port() { sed -n 's/^clientPort=//p' "$folder/zookeeper/zoo.cfg"; }

start_zookeeper() {
  local home=$folder/zookeeper
  if [ ! -s "$home/zoo.cfg" ]; then
    mkdir -p "$home"
    cat >"$home/zoo.cfg" <<CONF
tickTime=200
minSessionTimeout=400
dataDir=$home/data
clientPortAddress=127.0.0.1
clientPort=$(free_port)
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
CONF
  fi
  runs_zookeeper || CLASSPATH=$zookeeper_jar spawn zookeeper "$home" java -Xms32m -Xmx128m -XX:+UseSerialGC \
    -XX:TieredStopAtLevel=1 -Dzookeeper.forceSync=no org.apache.zookeeper.server.quorum.QuorumPeerMain "$home/zoo.cfg"
  wait_for zookeeper "$home" replies "$(zookeeper_port)" ruok
}

stop_zookeeper() { end "$folder/zookeeper/zookeeper.pid"; }
runs_zookeeper() { runs "$folder/zookeeper/zookeeper.pid"; }
urls_zookeeper() { echo "MAINSPRING_TEST_ZOOKEEPER=zookeeper://127.0.0.1:$(zookeeper_port)"; }
