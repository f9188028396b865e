/** What happened to an event, the oldest first, and what happens if it is sent again. */
import { Anchor, Code, Group, List, Stack, Text, Timeline } from '@mantine/core';
import {
  IconArchive,
  IconBan,
  IconCalendarOff,
  IconCircleX,
  IconEraser,
  IconFlag,
  IconFlagOff,
  IconGavel,
  IconHistory,
  IconInbox,
  IconRepeat,
  IconStack2,
  IconTag,
  IconTagOff,
  IconTrash,
  IconTrashX,
  IconUserX,
} from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import type { ComponentType } from 'react';
import { dateTime, duration, relative } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import type { LifeAnswer } from './event.js';
import { EventLink } from './parts.js';

type Entry = LifeAnswer['timeline'][number];

const ICONS: Readonly<Record<Entry['what'], ComponentType<{ size?: number }>>> = {
  arrived: IconInbox,
  repeated: IconRepeat,
  superseded: IconHistory,
  'deletion-requested': IconTrash,
  deleted: IconTrashX,
  expired: IconCalendarOff,
  retention: IconArchive,
  capacity: IconStack2,
  vanished: IconUserX,
  withheld: IconBan,
  removed: IconCircleX,
  erased: IconEraser,
  purged: IconEraser,
  'case-opened': IconFlag,
  'case-closed': IconFlagOff,
  action: IconGavel,
  labelled: IconTag,
  'label-withdrawn': IconTagOff,
};

export function Life({ life }: { readonly life: LifeAnswer }) {
  const t = useT();
  const { timeline } = life;
  return (
    <Timeline
      active={timeline.length}
      bulletSize={28}
      lineWidth={2}
      aria-label={t('events:life')}
      role="list"
    >
      {timeline.map((entry, at) => {
        const Icon = ICONS[entry.what];
        return (
          <Timeline.Item
            key={at}
            role="listitem"
            bullet={<Icon size={15} />}
            title={t(`events:step.${entry.what}`)}
          >
            <EntryOf entry={entry} />
            {entry.what === 'arrived' && <Delay at={entry.at} createdAt={life.event?.created_at} />}
          </Timeline.Item>
        );
      })}
    </Timeline>
  );
}

const WAYS: Readonly<Record<string, 'post' | 'gossip' | 'sync'>> = {
  'posted here or imported': 'post',
  'from another node, by gossip': 'gossip',
  'from another relay, by sync': 'sync',
};
const LATE_MS = 3_600_000;

/** What comes long after it was written was imported, synced, or sent again. */
function Delay({ at, createdAt }: { readonly at: number | null; readonly createdAt: number | undefined }) {
  const t = useT();
  const late = at === null || createdAt === undefined ? 0 : at - createdAt * 1_000;
  if (late < LATE_MS) return null;
  return <Text size="sm">{t('events:arrivedLate', { time: duration(late) })}</Text>;
}

function EntryOf({ entry }: { readonly entry: Entry }) {
  const t = useT();
  const detail = useDetail()(entry);
  const { at, pubkey, event_id: cause, case_id: caseId } = entry;
  return (
    <Stack gap={2}>
      <Text size="xs" c="dimmed" className="number">
        {at === null ? (
          t('events:timeUnknown')
        ) : (
          <time dateTime={new Date(at).toISOString()}>
            {dateTime(at)} · {relative(at)}
          </time>
        )}
      </Text>
      {detail !== undefined && <Text size="sm">{detail}</Text>}
      {pubkey !== null && entry.what !== 'arrived' && (
        <Group gap={6}>
          <Text size="sm" c="dimmed">
            {t('events:byWhom')}
          </Text>
          <Someone pubkey={pubkey} to={`/members/${pubkey}`} />
        </Group>
      )}
      {cause !== null && (
        <Group gap={6}>
          <Text size="sm" c="dimmed">
            {t('events:cause')}
          </Text>
          <EventLink id={cause} />
        </Group>
      )}
      {caseId !== null && (
        <Anchor component={Link} to={`/cases/${caseId}`} size="sm" underline="always">
          {t('events:case')} {caseId.slice(0, 8)}
        </Anchor>
      )}
    </Stack>
  );
}

/** The details that the node words itself, in the language of the reader; others are names. */
function useDetail(): (entry: Entry) => string | undefined {
  const t = useT();
  return ({ what, detail }) => {
    if (detail === null) return undefined;
    if (what === 'arrived') return t(`events:came.${WAYS[detail] ?? 'post'}`);
    if (what === 'repeated') return t('events:detail.times', { count: Number.parseInt(detail, 10) });
    if (what === 'deletion-requested')
      return t(detail === 'by its address' ? 'events:detail.byAddress' : 'events:detail.byId');
    return detail;
  };
}

export function SentAgain({ again }: { readonly again: LifeAnswer['sent_again'] }) {
  const t = useT();
  const { comes_back: comesBack, reply, also } = again;
  const answer = comesBack === null ? 'events:depends' : comesBack ? 'events:comesBack' : 'events:staysAway';
  return (
    <Stack gap="xs">
      <Text fw={600}>{t(answer)}</Text>
      {reply !== null && reply !== '' && (
        <Text size="sm">
          {t('events:reply')}: <Code>{reply}</Code>
        </Text>
      )}
      {also.length > 0 && (
        <List size="sm" spacing={4}>
          {also.map((ground) => (
            <List.Item key={ground}>
              <Ground ground={ground} />
            </List.Item>
          ))}
        </List>
      )}
    </Stack>
  );
}

function Ground({ ground }: { readonly ground: string }) {
  const t = useT();
  if (ground === 'its author is blocked') return <>{t('events:also.blocked')}</>;
  const account = /^the account of its author is (disabled|deleted|erasing)$/.exec(ground)?.[1];
  if (account !== undefined) return <>{t(`events:also.${account}`)}</>;
  const author = /^if ([0-9a-f]{64}) wrote it/.exec(ground)?.[1];
  if (author === undefined) return <>{ground}</>;
  return (
    <Stack gap={2}>
      {t('events:also.ifBy')}
      <Someone pubkey={author} to={`/members/${author}`} />
    </Stack>
  );
}
