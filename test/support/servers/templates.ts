/** The databases that test files clone. */

/** Migrated, with the tables of the scheduler, as after the first start of a worker. */
export const TEMPLATE = 'minato_template';
/** Also with the partitions of this month and the next ones, as a node makes them at its first start. */
export const READY = 'minato_ready';
