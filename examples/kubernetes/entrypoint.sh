#!/bin/sh
# What Spark's scheduler for Kubernetes asks a container for, by its first argument and its environment
# (Spark: BasicDriverFeatureStep, BasicExecutorFeatureStep); anything else is run as it is.
set -eu

# The pod's own numeric user may have no name, which Hadoop asks for.
if ! whoami >/dev/null 2>&1; then
    export HADOOP_USER_NAME="${SPARK_USER:-spark}" USER="${SPARK_USER:-spark}"
fi

# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option of the JVM each, whatever is in it. In an argument file of java's a newline within
# quotes is written \n.
java_options() {
    number=0
    while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
        eval "printf '%s\n' \"\$SPARK_JAVA_OPT_$number\"" | sed 's/[\\"]/\\&/g' |
            awk 'BEGIN { printf "\"" } { gsub(/\r/, "\\\\r") } NR > 1 { printf "\\n" } { printf "%s", $0 } END { print "\"" }'
        number=$((number + 1))
    done
}

case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
executor)
    options="$(mktemp)"
    java_options >"$options"
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "@$options" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${HADOOP_CONF_DIR:+$HADOOP_CONF_DIR:}${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*:${SPARK_DIST_CLASSPATH:+$SPARK_DIST_CLASSPATH:}$PWD" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
