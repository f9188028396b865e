/** The labels in force, by label and by person; a moderator can withdraw one, and undo that. */
import { Anchor, Button, Group, Select, Stack, Text } from '@mantine/core';
import { IconTags } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { oneOf, text, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { npubOf, pubkeyOf } from '../../../shared/keys.js';
import type { paths } from '../../../shared/schema.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { TOUCHED, undoBatch, useUndo } from '../cases/actions.js';
import { Typed } from '../cases/filters.js';
import { LabelBadge } from '../cases/parts.js';
import { LABELS } from '../cases/types.js';
import './texts.js';

type Labels = paths['/v1/admin/labels']['get']['responses'][200]['content']['application/json'];
type Label = Labels['items'][number];

const filterSchema = { label: oneOf(LABELS), person: text };

export default function LabelsPage() {
  const t = useT();
  const [{ label, person }, setFilters] = useFilters(filterSchema);
  const columns = useColumns();
  const list = useList(['labels', label, person], (cursor) => {
    const pubkey = person === undefined ? undefined : pubkeyOf(person);
    const query = {
      ...(label === undefined ? {} : { label }),
      ...(pubkey === undefined ? {} : { target_pubkey: pubkey }),
      ...(cursor === undefined ? {} : { cursor }),
    };
    return dataOf(api.GET('/v1/admin/labels', { params: { query } }));
  });
  return (
    <>
      <PageHead title={t('labels:title')} about={t('labels:about')} />
      <Group mb="md" align="flex-start">
        <Select
          label={t('labels:label')}
          placeholder={t('labels:any')}
          clearable
          clearButtonProps={{ 'aria-label': t('labels:clear') }}
          data={LABELS.map((one) => ({ value: one, label: t(`cases:labels.${one}`) }))}
          value={label ?? null}
          onChange={(next) => setFilters({ label: (next ?? undefined) as typeof label })}
        />
        <Typed
          label={t('labels:person')}
          placeholder="npub1…"
          value={person === undefined ? '' : npubOf(person)}
          problem={(text) => (pubkeyOf(text) === undefined ? t('labels:notAKey') : undefined)}
          onDone={(text) => setFilters({ person: text === '' ? undefined : pubkeyOf(text) })}
        />
      </Group>
      <DataTable
        label={t('labels:title')}
        list={list}
        columns={columns}
        keyOf={({ label_id: id }) => id}
        empty={
          <Empty title={t('labels:none')} icon={<IconTags size={26} />}>
            {t('labels:noneAbout')}
          </Empty>
        }
      />
    </>
  );
}

function useColumns(): readonly Column<Label>[] {
  const t = useT();
  const may = useMay('moderator');
  const columns: Column<Label>[] = [
    {
      label: t('labels:label'),
      width: 150,
      show: (put) => (
        <Stack gap={2} align="flex-start">
          <LabelBadge label={put.label} />
          <Text size="xs" c="dimmed" className="number">
            {t('labels:confidence', { value: number(put.confidence, 2) })}
          </Text>
        </Stack>
      ),
    },
    {
      label: t('labels:target'),
      show: (put) => (
        <Stack gap={2}>
          <Someone pubkey={put.target_pubkey} />
          <Text size="xs" c="dimmed" component="div">
            {put.target_event === null ? t('labels:onPerson') : <OnPost put={put} mayOpen={may} />}
          </Text>
        </Stack>
      ),
    },
    {
      label: t('labels:by'),
      width: 200,
      isMinor: true,
      show: (put) => (
        <Stack gap={2}>
          <Text size="sm">{t(put.rule_id === null ? 'labels:byModerator' : 'labels:byRule')}</Text>
          {put.policy !== '' && (
            <Text size="xs" c="dimmed" className="text">
              {put.policy}
            </Text>
          )}
        </Stack>
      ),
    },
    {
      label: t('labels:put'),
      width: 130,
      isMinor: true,
      show: (put) => <When at={put.created_at} />,
    },
    {
      label: t('labels:lapses'),
      width: 130,
      isMinor: true,
      show: (put) => <When at={put.lapses_at * 1_000} />,
    },
  ];
  if (may) columns.push({ label: t('labels:withdraw'), width: 120, show: (put) => <Withdraw put={put} /> });
  return columns;
}

/** The id of the post; moderators get a link to its case. */
function OnPost({ put, mayOpen }: { readonly put: Label; readonly mayOpen: boolean }) {
  const t = useT();
  const id = <span className="mono">{put.target_event?.slice(0, 12)}…</span>;
  return (
    <>
      {t('labels:onPost')} {id}
      {mayOpen && put.case_id !== null && (
        <>
          {' · '}
          <Anchor component={Link} to={`/cases/${put.case_id}`} size="xs" underline="always">
            {t('labels:toCase')}
          </Anchor>
        </>
      )}
    </>
  );
}

function Withdraw({ put }: { readonly put: Label }) {
  const t = useT();
  const offerUndo = useUndo();
  const withdrawing = useAction(
    () =>
      dataOf(
        api.POST('/v1/admin/labels/{label_id}/withdraw', {
          params: { path: { label_id: put.label_id } },
          body: {},
        }),
      ),
    {
      changes: TOUCHED,
      onDone: ({ batch_id: id }) => offerUndo(t('labels:withdrawn'), () => undoBatch(id)),
    },
  );
  return (
    <Button
      size="compact-sm"
      variant="default"
      loading={withdrawing.isPending}
      onClick={() => withdrawing.mutate(undefined)}
    >
      {t('labels:withdraw')}
    </Button>
  );
}
