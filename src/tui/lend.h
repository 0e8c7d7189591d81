/*
 * Around another program's screen on our terminal that may be cut off (one of another machine, by ssh): lend before it, and take
 * back what it couldn't give back itself. Not while there's a screen of ours. In screen.c.
 */
#pragma once

void screen_lend(void);
void screen_take_back(void);
