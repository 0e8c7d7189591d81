/* What a service manager of systemd's kind wants to hear, by hand: one datagram each. Without NOTIFY_SOCKET nothing is said. */
#pragma once

#include <stdint.h>

/* "READY=1", several lines at once. */
void sd_notify_say(const char *text);
/* "RELOADING=1" with the moment that belongs to it. */
void sd_notify_reloading(void);
/* Half of WATCHDOG_USEC in ms, if that's meant for this process; 0: nobody watches. */
int64_t sd_notify_watchdog_ms(void);
