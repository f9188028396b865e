/** Small parts of both pages: the state and the kind of an event, and links to events and topics. */
import { Anchor, Badge, Group } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useT } from '../../../shared/i18n.js';
import { useTopicNames } from '../../topic-names.js';

const COLORS: Readonly<Record<string, string>> = {
  served: 'teal',
  held: 'yellow',
  removed: 'red',
  deleted: 'orange',
  superseded: 'blue',
};

/** Of a found event, or of the life of one that is not stored. */
export function StateBadge({ state }: { readonly state: string }) {
  const t = useT();
  return (
    <Badge variant="dot" color={COLORS[state] ?? 'gray'} tt="none" fw={550}>
      {t(`events:state.${state}`)}
    </Badge>
  );
}

const NAMED = new Set([0, 1, 3, 4, 5, 6, 7, 62, 1059, 1111, 1984, 1985, 9735, 10_002, 30_023, 30_382]);

export function useKindName(): (kind: number) => string {
  const t = useT();
  return (kind) => (NAMED.has(kind) ? t(`events:kind.${kind}`) : t('events:kind.other', { kind }));
}

export function EventLink({ id }: { readonly id: string }) {
  return (
    <Anchor component={Link} to={`/events/${id}`} size="sm" className="mono" underline="always">
      {id.slice(0, 8)}…{id.slice(-4)}
    </Anchor>
  );
}

interface TopicsProps {
  readonly topics: readonly string[];
  readonly max?: number;
  /** Each leads to its events by default, or to the topic itself. */
  readonly to?: '/events' | '/topics';
}

export function Topics({ topics, max, to = '/events' }: TopicsProps) {
  const names = useTopicNames();
  const shown = topics.slice(0, max);
  return (
    <Group gap={4}>
      {shown.map((topic) => (
        <Anchor
          key={topic}
          component={Link}
          to={to}
          search={{ topic } as never}
          size="xs"
          title={topic}
          truncate
          maw={180}
        >
          {names.get(topic) ?? topic}
        </Anchor>
      ))}
      {topics.length > shown.length && <span>+{topics.length - shown.length}</span>}
    </Group>
  );
}
