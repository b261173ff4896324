/* What would run on threads runs in the calling thread. */
static void mcc_serial_for(void *pool, void (*body)(void *, int64_t, int64_t, int32_t),
    void *context, int64_t extent, int64_t grain)
{
    (void)pool, (void)grain;
    body(context, 0, extent, 0);
}
