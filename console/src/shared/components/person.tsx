/** A person: the name if it is known, and the key. In the console it leads to the page of the member. */
import { Group, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { npubOf, shortKey } from '../keys.js';
import { Copy } from './copy.js';

interface PersonProps {
  readonly pubkey: string;
  readonly name?: string | null | undefined;
  /** The path of the person's page. */
  readonly to?: string;
}

export function Person({ pubkey, name, to }: PersonProps) {
  const text = name ?? shortKey(pubkey);
  const isKey = name === undefined || name === null;
  return (
    <Group gap={4} wrap="nowrap">
      <Text size="sm" span className={isKey ? 'mono' : undefined} title={npubOf(pubkey)} truncate maw={220}>
        {to === undefined ? (
          text
        ) : (
          <Link to={to} className="table-link">
            {text}
          </Link>
        )}
      </Text>
      <Copy value={npubOf(pubkey)} />
    </Group>
  );
}
