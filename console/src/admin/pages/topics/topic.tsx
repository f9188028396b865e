/** One topic: what it is, its policy, and what a changed policy would purge. */
import {
  Alert,
  Button,
  Divider,
  Drawer,
  Group,
  List,
  NumberInput,
  Select,
  SimpleGrid,
  Stack,
  Switch,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Copy } from '../../../shared/components/copy.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { bytes, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import {
  BLOCKED_KEY,
  nameOf,
  type Policy,
  type Preview,
  purgesDiffer,
  TOPICS_KEY,
  type Topic,
} from './data.js';

interface TopicDrawerProps {
  readonly topicId: string | undefined;
  readonly onClose: () => void;
}

export function TopicDrawer({ topicId, onClose }: TopicDrawerProps) {
  const t = useT();
  const query = useQuery({
    queryKey: [...TOPICS_KEY, topicId],
    queryFn: () =>
      dataOf(
        api.GET('/v1/admin/node-subscriptions/{topic_id}', { params: { path: { topic_id: topicId ?? '' } } }),
      ),
    enabled: topicId !== undefined,
  });
  return (
    <Drawer
      opened={topicId !== undefined}
      onClose={onClose}
      position="right"
      size="lg"
      title={t('topics:settings')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      {query.isPending && <Loading />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data && <Editor key={query.data.updated_at} topic={query.data} onClose={onClose} />}
    </Drawer>
  );
}

const MEGABYTE = 1_000_000;
type Field = number | '';
const fieldOf = (value: number | undefined): Field => value ?? '';
const given = (value: string | number): Field => (typeof value === 'number' ? value : '');

interface Draft {
  readonly name: string;
  readonly pinned: boolean;
  readonly public: boolean;
  readonly priority: Field;
  readonly retentionDays: Field;
  readonly maxEvents: Field;
  readonly maxMegabytes: Field;
  readonly maxDelaySeconds: Field;
  readonly backfill: 'default' | 'yes' | 'no';
}

function draftOf({ name, pinned, public: isPublic, priority, ingest_policy: policy }: Topic): Draft {
  const { retentionDays, maxEvents, maxBytes, maxDelaySeconds, allowBackfill } = policy;
  return {
    name: name ?? '',
    pinned,
    public: isPublic,
    priority,
    retentionDays: fieldOf(retentionDays),
    maxEvents: fieldOf(maxEvents),
    maxMegabytes: maxBytes === undefined ? '' : maxBytes / MEGABYTE,
    maxDelaySeconds: fieldOf(maxDelaySeconds),
    backfill: allowBackfill === undefined ? 'default' : allowBackfill ? 'yes' : 'no',
  };
}

function policyOf({ retentionDays, maxEvents, maxMegabytes, maxDelaySeconds, backfill }: Draft): Policy {
  return {
    ...(retentionDays === '' ? {} : { retentionDays }),
    ...(maxEvents === '' ? {} : { maxEvents }),
    ...(maxMegabytes === '' ? {} : { maxBytes: Math.round(maxMegabytes * MEGABYTE) }),
    ...(maxDelaySeconds === '' ? {} : { maxDelaySeconds }),
    ...(backfill === 'default' ? {} : { allowBackfill: backfill === 'yes' }),
  };
}

const purged = ({ retention, capacity }: Preview) => retention.events + capacity.events;

function Editor({ topic, onClose }: { readonly topic: Topic; readonly onClose: () => void }) {
  const t = useT();
  const may = useMay('operator');
  const [draft, setDraft] = useState(draftOf(topic));
  const [asked, setAsked] = useState<Preview>();
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const path = { topic_id: topic.topic_id };
  const policy = policyOf(draft);
  const preview = useAction(
    () =>
      dataOf(
        api.POST('/v1/admin/node-subscriptions/{topic_id}/preview', {
          params: { path },
          body: { ingest_policy: policy },
        }),
      ),
    { changes: [] },
  );
  const save = useAction(
    () =>
      dataOf(
        api.PATCH('/v1/admin/node-subscriptions/{topic_id}', {
          params: { path },
          body: {
            name: draft.name.trim() === '' ? null : draft.name.trim(),
            pinned: draft.pinned,
            public: draft.public,
            priority: draft.priority === '' ? 0 : draft.priority,
            ingest_policy: policy,
          },
        }),
      ),
    {
      changes: [TOPICS_KEY],
      onDone: () => {
        setAsked(undefined);
        notifyDone(t('topics:saved'));
      },
    },
  );
  /** A change that purges something is asked about first, with its numbers. */
  const submit = async () => {
    if (!purgesDiffer(policy, topic.ingest_policy)) return save.mutate();
    const found = await preview.mutateAsync().catch(() => undefined);
    if (found === undefined) return;
    if (purged(found) === 0 && found.complete) save.mutate();
    else setAsked(found);
  };
  // The dialogs are outside the form: their own forms would submit this one as well.
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Stack>
          <Stack gap={2}>
            <Title order={2} size="h4" style={{ overflowWrap: 'anywhere' }}>
              {nameOf(topic)}
            </Title>
            <Group gap={4} wrap="nowrap">
              <Text size="xs" c="dimmed" className="mono" style={{ overflowWrap: 'anywhere' }}>
                {topic.topic_id}
              </Text>
              <Copy value={topic.topic_id} />
            </Group>
          </Stack>
          {!may && (
            <Alert variant="light" role="note">
              {t('topics:readOnly')}
            </Alert>
          )}
          <TextInput
            label={t('topics:name')}
            description={t('topics:nameAbout')}
            maxLength={256}
            disabled={!may}
            value={draft.name}
            onChange={(event) => change({ name: event.currentTarget.value })}
          />
          <Switch
            label={t('topics:pinned')}
            description={t('topics:pinnedAbout')}
            disabled={!may}
            checked={draft.pinned}
            onChange={(event) => change({ pinned: event.currentTarget.checked })}
          />
          <Switch
            label={t('topics:public')}
            description={t('topics:publicAbout')}
            disabled={!may}
            checked={draft.public}
            onChange={(event) => change({ public: event.currentTarget.checked })}
          />
          <NumberInput
            label={t('topics:priority')}
            description={t('topics:priorityAbout')}
            disabled={!may}
            min={-32_767}
            max={32_767}
            allowDecimal={false}
            value={draft.priority}
            onChange={(value) => change({ priority: given(value) })}
          />
          <Divider />
          <PolicyFields draft={draft} change={change} isDisabled={!may} />
          {preview.data && purgesDiffer(policy, topic.ingest_policy) && <Numbers preview={preview.data} />}
          {may && (
            <Group justify="space-between">
              <Button variant="default" loading={preview.isPending} onClick={() => preview.mutate()}>
                {t('topics:preview')}
              </Button>
              <Button type="submit" loading={save.isPending}>
                {t('topics:save')}
              </Button>
            </Group>
          )}
        </Stack>
      </form>
      {may && <Ending topic={topic} onClose={onClose} />}
      <Confirm
        opened={asked !== undefined}
        title={t('topics:purgeTitle')}
        name={nameOf(topic)}
        action={t('topics:purgeAction')}
        isBusy={save.isPending}
        onConfirm={() => save.mutate()}
        onClose={() => setAsked(undefined)}
      >
        {asked && <Numbers preview={asked} />}
        <Text size="sm">{t('topics:purgeForever')}</Text>
      </Confirm>
    </>
  );
}

interface PolicyFieldsProps {
  readonly draft: Draft;
  readonly change: (part: Partial<Draft>) => void;
  readonly isDisabled: boolean;
}

function PolicyFields({ draft, change, isDisabled }: PolicyFieldsProps) {
  const t = useT();
  const backfill = (['default', 'yes', 'no'] as const).map((value) => ({
    value,
    label: t(`topics:backfill.${value}`),
  }));
  return (
    <Stack gap="sm">
      <Stack gap={0}>
        <Title order={3} size="h5">
          {t('topics:policy')}
        </Title>
        <Text size="sm" c="dimmed">
          {t('topics:policyAbout')}
        </Text>
      </Stack>
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <NumberInput
          label={t('topics:retentionDays')}
          description={t('topics:retentionDaysAbout')}
          disabled={isDisabled}
          min={0}
          max={36_500}
          allowDecimal={false}
          value={draft.retentionDays}
          onChange={(value) => change({ retentionDays: given(value) })}
        />
        <NumberInput
          label={t('topics:maxDelaySeconds')}
          description={t('topics:maxDelaySecondsAbout')}
          disabled={isDisabled}
          min={0}
          allowDecimal={false}
          value={draft.maxDelaySeconds}
          onChange={(value) => change({ maxDelaySeconds: given(value) })}
        />
        <NumberInput
          label={t('topics:maxEvents')}
          description={t('topics:maxAbout')}
          disabled={isDisabled}
          min={1}
          allowDecimal={false}
          thousandSeparator=","
          value={draft.maxEvents}
          onChange={(value) => change({ maxEvents: given(value) })}
        />
        <NumberInput
          label={t('topics:maxMegabytes')}
          description={t('topics:maxAbout')}
          disabled={isDisabled}
          min={0.001}
          decimalScale={3}
          thousandSeparator=","
          value={draft.maxMegabytes}
          onChange={(value) => change({ maxMegabytes: given(value) })}
        />
        <Select
          label={t('topics:allowBackfill')}
          disabled={isDisabled}
          allowDeselect={false}
          data={backfill}
          value={draft.backfill}
          onChange={(value) =>
            change({ backfill: backfill.find((one) => one.value === value)?.value ?? 'default' })
          }
        />
      </SimpleGrid>
    </Stack>
  );
}

function Numbers({ preview }: { readonly preview: Preview }) {
  const t = useT();
  const { retention, capacity, due, leaving, total, complete } = preview;
  const sized = (size: { events: number; bytes: number }) => ({
    events: number(size.events),
    size: bytes(size.bytes),
  });
  return (
    <Alert variant="light" color={purged(preview) > 0 ? 'red' : undefined} role="status">
      <List size="sm" spacing={4}>
        {purged(preview) === 0 && <List.Item>{t('topics:previewNone')}</List.Item>}
        {retention.events > 0 && <List.Item>{t('topics:previewRetention', sized(retention))}</List.Item>}
        {capacity.events > 0 && <List.Item>{t('topics:previewCapacity', sized(capacity))}</List.Item>}
        {leaving > 0 && <List.Item>{t('topics:previewLeaving', { events: number(leaving) })}</List.Item>}
        {due.events > 0 && <List.Item>{t('topics:previewDue', { events: number(due.events) })}</List.Item>}
        <List.Item>{t('topics:previewTotal', sized(total))}</List.Item>
        {!complete && <List.Item>{t('topics:atLeast')}</List.Item>}
      </List>
    </Alert>
  );
}

/** Block, unblock and remove. */
function Ending({ topic, onClose }: { readonly topic: Topic; readonly onClose: () => void }) {
  const t = useT();
  const [ending, setEnding] = useState<'block' | 'remove'>();
  const [reason, setReason] = useState('');
  const path = { topic_id: topic.topic_id };
  const changes = [TOPICS_KEY, BLOCKED_KEY];
  const close = () => setEnding(undefined);
  const block = useAction(
    () =>
      dataOf(
        api.PUT('/v1/admin/blocked-topics/{topic_id}', {
          params: { path },
          body: reason.trim() === '' ? {} : { reason: reason.trim() },
        }),
      ),
    {
      changes,
      onDone: () => {
        close();
        notifyDone(t('topics:wasBlocked'));
      },
    },
  );
  const unblock = useAction(
    () => dataOf(api.DELETE('/v1/admin/blocked-topics/{topic_id}', { params: { path } })),
    { changes, onDone: () => notifyDone(t('topics:unblocked')) },
  );
  const remove = useAction(
    () => dataOf(api.DELETE('/v1/admin/node-subscriptions/{topic_id}', { params: { path } })),
    {
      changes: [TOPICS_KEY],
      onDone: () => {
        onClose();
        notifyDone(t('topics:removed'));
      },
    },
  );
  const numbers = { count: topic.ref_count, events: number(topic.events) };
  return (
    <>
      <Divider my="md" />
      <Group>
        {topic.blocked ? (
          <Button variant="default" loading={unblock.isPending} onClick={() => unblock.mutate()}>
            {t('topics:unblock')}
          </Button>
        ) : (
          <Button variant="default" onClick={() => setEnding('block')}>
            {t('topics:block')}
          </Button>
        )}
        <Button variant="default" onClick={() => setEnding('remove')}>
          {t('topics:remove')}
        </Button>
      </Group>
      <Confirm
        opened={ending === 'block'}
        title={t('topics:blockTitle')}
        name={nameOf(topic)}
        action={t('topics:block')}
        isBusy={block.isPending}
        onConfirm={() => block.mutate()}
        onClose={close}
      >
        <Text size="sm">{t('topics:blockAbout', numbers)}</Text>
        <TextInput
          label={t('topics:reason')}
          maxLength={1_000}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
      </Confirm>
      <Confirm
        opened={ending === 'remove'}
        title={t('topics:removeTitle')}
        name={nameOf(topic)}
        action={t('topics:remove')}
        isBusy={remove.isPending}
        onConfirm={() => remove.mutate()}
        onClose={close}
      >
        <Text size="sm">{t('topics:removeAbout', numbers)}</Text>
      </Confirm>
    </>
  );
}
