/** Every item of the tables of events. The policy of a node does not allow it to scan; a test may. */
import type { Dynamodb, Item } from '../../../src/events/dynamodb/client.js';
import { TABLE_NAMES, type Table } from '../../../src/events/dynamodb/keys.js';

export interface TableItem {
  readonly table: Table;
  readonly item: Item;
}

export async function allItems(db: Dynamodb): Promise<TableItem[]> {
  const items: TableItem[] = [];
  for (const table of Object.keys(TABLE_NAMES) as Table[]) {
    let next: Item | undefined;
    do {
      const input = { TableName: db.nameOf(table), ConsistentRead: true, ExclusiveStartKey: next };
      const page = await db.plain(({ document, db: client }) => client.send(new document.ScanCommand(input)));
      items.push(...(page.Items ?? []).map((item) => ({ table, item })));
      next = page.LastEvaluatedKey;
    } while (next !== undefined);
  }
  return items;
}
