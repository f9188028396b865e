/** The queue of requests: one or many are approved or rejected, with a note. */
import { Alert, Button, Group, List, SegmentedControl, Stack, Text, Textarea } from '@mantine/core';
import { IconCheck, IconX } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { type Column, DataTable, Selection } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { oneOfOr, useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { shortKey } from '../../../shared/keys.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import './texts.js';

const STATUSES = ['pending', 'active', 'rejected', 'cancelled'] as const;
const filters = { status: oneOfOr(STATUSES, 'pending') };
type Status = (typeof STATUSES)[number];
type Decision = 'approve' | 'reject';
const MANY_MAX = 100;
const KEY = ['requests'];
const POLL_MS = 15_000;

const read = (status: Status, cursor: string | undefined) =>
  dataOf(api.GET('/v1/admin/topic-subscription-requests', { params: { query: { status, cursor } } }));
type Request = Awaited<ReturnType<typeof read>>['items'][number];

const review = (decision: Decision, request_ids: string[], note: string) =>
  dataOf(
    api.POST('/v1/admin/topic-subscription-requests/reviews', {
      body: { decision, request_ids, ...(note.trim() === '' ? {} : { note: note.trim() }) },
    }),
  );
type Outcome = Awaited<ReturnType<typeof review>>['items'][number];

export default function Requests() {
  const t = useT();
  const mayDecide = useMay('operator');
  const [{ status }, setFilters] = useFilters(filters);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [asking, setAsking] = useState<{ decision: Decision; ids: readonly string[] }>();
  const [refused, setRefused] = useState<readonly Outcome[]>([]);
  const list = useList(['requests', status], (cursor) => read(status, cursor), { refetchInterval: POLL_MS });
  const isQueue = status === 'pending' && mayDecide;
  const here = list.items.flatMap(({ request_id }) => (selected.has(request_id) ? [request_id] : []));
  const act = useAction(
    ({ decision, ids, note }: { decision: Decision; ids: readonly string[]; note: string }) =>
      review(decision, ids.slice(0, MANY_MAX), note),
    {
      changes: [KEY, ['members'], ['attention']],
      onDone: ({ items }) => {
        const failed = items.filter((item) => item.refused !== null);
        setSelected(new Set());
        setAsking(undefined);
        setRefused(failed);
        notifyDone(t('requests:doneSome', { done: items.length - failed.length, refused: failed.length }));
      },
    },
  );
  const columns: Column<Request>[] = [
    {
      label: t('requests:member'),
      show: ({ requester_pubkey: key }) => <Someone pubkey={key} to={`/members/${key}`} />,
    },
    { label: t('requests:topic'), show: (row) => <Topic id={row.topic_id} name={row.name} /> },
    {
      label: t('requests:services'),
      isMinor: true,
      show: ({ requested_services }) => requested_services.join(', ') || '–',
    },
    { label: t('requests:asked'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
  ];
  if (status !== 'pending')
    columns.push(
      { label: t('requests:decided'), show: ({ reviewed_at }) => <When at={reviewed_at} /> },
      { label: t('requests:note'), isMinor: true, show: ({ review_note }) => review_note ?? '–' },
    );
  if (isQueue)
    columns.push({
      label: '',
      width: 190,
      // On a phone one selects rows instead.
      isMinor: true,
      show: ({ request_id }) => (
        <Group gap={6} wrap="nowrap" justify="flex-end">
          <Button size="compact-sm" onClick={() => setAsking({ decision: 'approve', ids: [request_id] })}>
            {t('requests:approve')}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            onClick={() => setAsking({ decision: 'reject', ids: [request_id] })}
          >
            {t('requests:reject')}
          </Button>
        </Group>
      ),
    });
  return (
    <>
      <PageHead title={t('requests:title')} about={t('requests:about')} />
      <SegmentedControl
        mb="md"
        styles={{ label: { paddingInline: 8 } }}
        aria-label={t('requests:statusFilter')}
        value={status}
        onChange={(value) => {
          setSelected(new Set());
          setFilters({ status: value as Status });
        }}
        data={STATUSES.map((value) => ({ value, label: t(`requests:status.${value}`) }))}
      />
      {refused.length > 0 && <Refusals items={refused} onClose={() => setRefused([])} />}
      <Selection count={here.length}>
        <Button
          size="compact-sm"
          leftSection={<IconCheck size={15} />}
          onClick={() => setAsking({ decision: 'approve', ids: here })}
        >
          {t('requests:approve')}
        </Button>
        <Button
          size="compact-sm"
          variant="default"
          leftSection={<IconX size={15} />}
          onClick={() => setAsking({ decision: 'reject', ids: here })}
        >
          {t('requests:reject')}
        </Button>
      </Selection>
      <DataTable
        label={t('requests:title')}
        list={list}
        columns={columns}
        keyOf={({ request_id }) => request_id}
        {...(isQueue ? { selected, onSelect: setSelected } : {})}
        empty={
          status === 'pending' ? (
            <Empty title={t('requests:empty')}>{t('requests:emptyAbout')}</Empty>
          ) : (
            <Empty title={t('requests:emptyOther')} />
          )
        }
      />
      {asking && (
        <Decide
          key={asking.decision}
          decision={asking.decision}
          count={asking.ids.length}
          isBusy={act.isPending}
          onClose={() => setAsking(undefined)}
          onDecide={(note) => act.mutate({ ...asking, note })}
        />
      )}
    </>
  );
}

function Topic({ id, name }: { readonly id: string; readonly name: string | null }) {
  return (
    <Stack gap={0}>
      <Text size="sm" truncate maw={260}>
        {name ?? shorten(id)}
      </Text>
      {name !== null && (
        <Text size="xs" c="dimmed" className="mono" title={id} visibleFrom="sm">
          {shorten(id)}
        </Text>
      )}
    </Stack>
  );
}

const shorten = (id: string) => (id.length <= 24 ? id : `${id.slice(0, 16)}…${id.slice(-5)}`);

interface DecideProps {
  readonly decision: Decision;
  readonly count: number;
  readonly isBusy: boolean;
  readonly onClose: () => void;
  readonly onDecide: (note: string) => void;
}

function Decide({ decision, count, isBusy, onClose, onDecide }: DecideProps) {
  const t = useT();
  const [note, setNote] = useState('');
  const isApproval = decision === 'approve';
  const used = Math.min(count, MANY_MAX);
  return (
    <Confirm
      opened
      title={t(isApproval ? 'requests:approveMany' : 'requests:rejectMany', { count: used })}
      action={t(isApproval ? 'requests:approve' : 'requests:reject')}
      isHarmless={isApproval}
      isBusy={isBusy}
      onClose={onClose}
      onConfirm={() => onDecide(note)}
    >
      <Text size="sm">{t(isApproval ? 'requests:approveAbout' : 'requests:rejectAbout')}</Text>
      {count > MANY_MAX && <Text size="sm">{t('requests:tooMany', { max: MANY_MAX })}</Text>}
      <Textarea
        label={t('requests:noteLabel')}
        autosize
        minRows={2}
        maxLength={1_000}
        value={note}
        onChange={(event) => setNote(event.currentTarget.value)}
      />
    </Confirm>
  );
}

function Refusals({ items, onClose }: { readonly items: readonly Outcome[]; readonly onClose: () => void }) {
  const t = useT();
  return (
    <Alert
      color="orange"
      variant="light"
      mb="md"
      title={t('requests:refusedTitle')}
      withCloseButton
      closeButtonLabel={t('requests:dismiss')}
      onClose={onClose}
    >
      <List size="sm">
        {items.map(({ request_id, request, refused }) => (
          <List.Item key={request_id}>
            <span className="mono">{request === null ? request_id : shortKey(request.requester_pubkey)}</span>
            {': '}
            {refused !== null && t(`requests:refusal.${refused}`)}
          </List.Item>
        ))}
      </List>
    </Alert>
  );
}
