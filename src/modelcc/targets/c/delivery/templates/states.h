/* ---- what the model keeps from call to call */

/* Memory of yours, which a call changes; one that fails leaves it as it was. */
typedef struct ${name}_states {
${fields}
} ${name}_states;

/* Such memory as variables: a line DEFINE_STATES(states); outside of functions. */
#define ${NAME}_DEFINE_STATES(name) \
${memory}

/* Sets states to what they are before the first call. */
${reset}

