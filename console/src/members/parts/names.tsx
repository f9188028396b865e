/** Names of topics and people. */
import { Avatar, Text } from '@mantine/core';
import { useT } from '../../shared/i18n.js';
import { npubOf, shortKey } from '../../shared/keys.js';
import { useName } from '../profiles.js';

const ID_SHOWN = 18;

export function useTopicName(): (topic: string, name: string | null | undefined) => string {
  const t = useT();
  return (topic, name) => {
    if (name !== null && name !== undefined) return name;
    if (topic.endsWith(':global')) return t('home:globalTopic');
    return topic.length <= ID_SHOWN + 6 ? topic : `${topic.slice(0, ID_SHOWN)}…`;
  };
}

export function Author({ pubkey }: { readonly pubkey: string }) {
  const name = useName(pubkey);
  return (
    <Text
      span
      size="sm"
      fw={600}
      className={name === null ? 'mono' : undefined}
      title={npubOf(pubkey)}
      truncate
    >
      {name ?? shortKey(pubkey)}
    </Text>
  );
}

/** Letters instead of a picture: a picture would be a request to another host. */
export function Face({ pubkey }: { readonly pubkey: string }) {
  const name = useName(pubkey);
  const [first = '?'] = [...(name ?? shortKey(pubkey).slice(5))];
  return (
    <Avatar size={34} radius="xl" color={colorOf(pubkey)} variant="light" aria-hidden>
      {first.toUpperCase()}
    </Avatar>
  );
}

const COLORS = ['harbour', 'indigo', 'grape', 'teal', 'orange', 'pink', 'blue', 'lime'];
const colorOf = (pubkey: string): string =>
  COLORS[Number.parseInt(pubkey.slice(0, 4), 16) % COLORS.length] ?? 'harbour';
