/*
${head}
 */
#include "${name}.h"

${target_check}
${prelude}

${kernels}

${helpers}
${functions}
