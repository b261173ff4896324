/*
${head}
 */
#include "${name}.h"

${target_check}
${prelude}

${kernels}

${functions}
