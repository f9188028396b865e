/** The databases that test files clone. */

/** Migrated. */
export const TEMPLATE = 'minato_template';
/** Also with the partitions of this month and the next ones, as a node makes them at its first start. */
export const READY = 'minato_ready';
