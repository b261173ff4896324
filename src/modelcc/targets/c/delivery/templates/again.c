    for (int64_t call = 1; status == 0 && call < calls; call++)
        status = ${name}_run(
            ${arguments});
