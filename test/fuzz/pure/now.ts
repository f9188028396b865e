/** The time of pure targets, so that a run depends on its seed only. Seconds. */
export const NOW = 1_700_000_000;
