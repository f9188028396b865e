/** The roles of a process: what each does. One that has them all needs no other. */

export const ROLES = ['relay', 'api', 'worker'] as const;
export type Role = (typeof ROLES)[number];
