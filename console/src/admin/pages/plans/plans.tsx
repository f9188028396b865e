/** Plans, what members used, and the webhook of the payment provider, in three tabs. */
import { Button, Group, Modal, NumberInput, Select, Stack, Tabs, Text, TextInput } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { day, oneOf, oneOfOr, useFilters } from '../../../shared/filters.js';
import { date, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { Webhook } from './webhook.js';
import './texts.js';

const TABS = ['plans', 'usage', 'webhook'] as const;
const METRICS = ['search', 'trust', 'reports', 'exports'] as const;
const LIMITS = [
  'max_topics',
  'search_per_day',
  'trust_per_day',
  'reports_per_day',
  'exports_per_day',
] as const;
type Limits = Record<(typeof LIMITS)[number], number | null>;
const filters = {
  tab: oneOfOr(TABS, 'plans'),
  metric: oneOf(METRICS),
  day,
};
const KEY = ['plans'];

const readPlans = (cursor: string | undefined) =>
  dataOf(api.GET('/v1/admin/plans', { params: { query: { cursor } } }));
type Plan = Awaited<ReturnType<typeof readPlans>>['items'][number];

export default function Plans() {
  const t = useT();
  const mayAct = useMay('operator');
  const [{ tab }, setFilters] = useFilters(filters);
  const shown = tab === 'webhook' && !mayAct ? 'plans' : tab;
  return (
    <>
      <PageHead title={t('plans:title')} about={t('plans:about')} />
      <Tabs
        value={shown}
        keepMounted={false}
        onChange={(next) => setFilters({ tab: (next ?? 'plans') as typeof tab })}
      >
        <Tabs.List aria-label={t('plans:sections')} mb="md">
          {TABS.filter((name) => name !== 'webhook' || mayAct).map((name) => (
            <Tabs.Tab key={name} value={name}>
              {t(`plans:tabs.${name}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="plans">
          <PlanList />
        </Tabs.Panel>
        <Tabs.Panel value="usage">
          <UsageList />
        </Tabs.Panel>
        <Tabs.Panel value="webhook">
          <Webhook />
        </Tabs.Panel>
      </Tabs>
    </>
  );
}

function PlanList() {
  const t = useT();
  const mayAct = useMay('operator');
  const [editing, setEditing] = useState<Plan | 'new'>();
  const [removing, setRemoving] = useState<Plan>();
  const list = useList(KEY, readPlans);
  const remove = useAction(
    (plan_id: string) => dataOf(api.DELETE('/v1/admin/plans/{plan_id}', { params: { path: { plan_id } } })),
    {
      changes: [KEY],
      onDone: () => {
        setRemoving(undefined);
        notifyDone(t('plans:removed'));
      },
    },
  );
  const columns: Column<Plan>[] = [
    {
      label: t('plans:plan'),
      show: ({ plan_id, name, created_at }) => (
        <Stack gap={0}>
          <Text size="sm" fw={550}>
            {name}
          </Text>
          <Text size="xs" c="dimmed" className="mono">
            {plan_id}
            {created_at === null && ` · ${t('plans:builtIn')}`}
          </Text>
        </Stack>
      ),
    },
    ...LIMITS.map(
      (key): Column<Plan> => ({
        label: t(`plans:limit.${key}`),
        isNumber: true,
        isMinor: key !== 'max_topics',
        show: ({ limits }) => (limits[key] === null ? t('plans:noLimit') : number(limits[key])),
      }),
    ),
  ];
  if (mayAct)
    columns.push({
      label: '',
      width: 170,
      show: (row) => (
        <Group gap={6} wrap="nowrap" justify="flex-end">
          <Button size="compact-sm" variant="default" onClick={() => setEditing(row)}>
            {t('plans:edit')}
          </Button>
          {row.created_at !== null && (
            <Button size="compact-sm" variant="default" onClick={() => setRemoving(row)}>
              {t('plans:remove')}
            </Button>
          )}
        </Group>
      ),
    });
  return (
    <>
      {mayAct && (
        <Button mb="md" leftSection={<IconPlus size={16} />} onClick={() => setEditing('new')}>
          {t('plans:create')}
        </Button>
      )}
      <DataTable
        label={t('plans:tabs.plans')}
        list={list}
        columns={columns}
        keyOf={({ plan_id }) => plan_id}
        empty={<Empty title={t('plans:empty')} />}
      />
      {editing && (
        <EditPlan plan={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} />
      )}
      <Confirm
        opened={removing !== undefined}
        title={t('plans:removeTitle', { name: removing?.name })}
        action={t('plans:remove')}
        name={removing?.plan_id ?? ''}
        isBusy={remove.isPending}
        onClose={() => setRemoving(undefined)}
        onConfirm={() => removing && remove.mutate(removing.plan_id)}
      >
        <Text size="sm">{t('plans:removeAbout')}</Text>
      </Confirm>
    </>
  );
}

const NO_LIMITS = Object.fromEntries(LIMITS.map((key) => [key, null])) as Limits;

function EditPlan({ plan, onClose }: { readonly plan: Plan | undefined; readonly onClose: () => void }) {
  const t = useT();
  const [id, setId] = useState(plan?.plan_id ?? '');
  const [name, setName] = useState(plan?.name ?? '');
  const [limits, setLimits] = useState<Limits>(plan?.limits ?? NO_LIMITS);
  // The built-in plan has no row yet: changing it makes one.
  const isNew = plan === undefined || plan.created_at === null;
  const save = useAction(
    () =>
      isNew
        ? dataOf(api.POST('/v1/admin/plans', { body: { plan_id: id, name, limits } }))
        : dataOf(
            api.PATCH('/v1/admin/plans/{plan_id}', {
              params: { path: { plan_id: plan.plan_id } },
              body: { name, limits },
            }),
          ),
    {
      changes: [KEY],
      onDone: () => {
        notifyDone(t('plans:saved'));
        onClose();
      },
    },
  );
  return (
    <Modal
      opened
      centered
      onClose={onClose}
      title={plan === undefined ? t('plans:create') : t('plans:editPlan', { name: plan.name })}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate(undefined);
        }}
      >
        <Stack gap="sm">
          {plan === undefined && (
            <TextInput
              required
              label={t('plans:id')}
              description={t('plans:idAbout')}
              pattern="[a-z0-9][a-z0-9\-]*"
              maxLength={63}
              value={id}
              onChange={(event) => setId(event.currentTarget.value)}
            />
          )}
          <TextInput
            required
            label={t('plans:name')}
            maxLength={200}
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <Text size="sm" c="dimmed">
            {t('plans:limitAbout')}
          </Text>
          {LIMITS.map((key) => (
            <NumberInput
              key={key}
              label={t(`plans:limit.${key}`)}
              placeholder={t('plans:noLimit')}
              min={0}
              max={1_000_000_000}
              allowDecimal={false}
              thousandSeparator=","
              value={limits[key] ?? ''}
              onChange={(value) => setLimits({ ...limits, [key]: typeof value === 'number' ? value : null })}
            />
          ))}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={save.isPending}>
              {t('plans:save')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function UsageList() {
  const t = useT();
  const [{ metric, day }, setFilters] = useFilters(filters);
  const list = useList(['usage', metric, day], (cursor) =>
    dataOf(api.GET('/v1/admin/usage', { params: { query: { metric, day, cursor } } })),
  );
  return (
    <>
      <Group mb="md" align="flex-end">
        <Select
          label={t('plans:metric')}
          value={metric ?? ''}
          allowDeselect={false}
          onChange={(value) => setFilters({ metric: METRICS.find((known) => known === value) })}
          data={[
            { value: '', label: t('plans:anyMetric') },
            ...METRICS.map((value) => ({ value, label: t(`plans:metrics.${value}`) })),
          ]}
        />
        <TextInput
          type="date"
          label={t('plans:day')}
          value={day ?? ''}
          onChange={(event) => setFilters({ day: event.currentTarget.value || undefined })}
        />
      </Group>
      <DataTable
        label={t('plans:tabs.usage')}
        list={list}
        keyOf={(row) => `${row.day} ${row.pubkey} ${row.metric}`}
        columns={[
          {
            label: t('plans:member'),
            show: ({ pubkey }) => <Someone pubkey={pubkey} to={`/members/${pubkey}`} />,
          },
          { label: t('plans:metric'), show: (row) => t(`plans:metrics.${row.metric}`) },
          { label: t('plans:day'), show: (row) => date(Date.parse(row.day)) },
          { label: t('plans:used'), isNumber: true, show: ({ used }) => number(used) },
        ]}
        empty={<Empty title={t('plans:noUsage')}>{t('plans:noUsageAbout')}</Empty>}
      />
    </>
  );
}
