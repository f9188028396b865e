/** A new batch: choose the events, see in numbers what it would do, then start it. */
import {
  Alert,
  Anchor,
  Button,
  Grid,
  Paper,
  SegmentedControl,
  Select,
  Stack,
  Text,
  Textarea,
  TextInput,
  Title,
} from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Failure } from '../../../shared/components/states.js';
import { oneOf, useFilters, uuid } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { type LabelSpec, TOUCHED } from '../cases/actions.js';
import { LabelFields, NEW_LABEL } from '../cases/label-fields.js';
import { useRules } from '../cases/rules-by-id.js';
import { ConditionForm } from '../rules/condition-form.js';
import { conditionsOf, NO_CONDITIONS } from '../rules/conditions.js';
import { Findings } from '../rules/findings.js';
import './texts.js';
import type { NewBatch, Preview } from './types.js';

const WAYS = ['conditions', 'search', 'rule', 'case'] as const;
const ACTIONS = ['remove', 'hold', 'label'] as const;
const filterSchema = {
  by: oneOf(WAYS),
  case: uuid,
  rule: uuid,
};

export default function NewBatchPage() {
  const t = useT();
  const navigate = useNavigate();
  const [filters, setFilters] = useFilters(filterSchema);
  const by = filters.by ?? (filters.case === undefined ? 'conditions' : 'case');
  const [fields, setFields] = useState(NO_CONDITIONS);
  const [search, setSearch] = useState('');
  const [action, setAction] = useState<(typeof ACTIONS)[number]>('hold');
  const [label, setLabel] = useState<LabelSpec>(NEW_LABEL);
  const [note, setNote] = useState('');
  const [isAsking, setAsking] = useState(false);
  const may = useMay('moderator');
  const rules = (useRules().data ?? []).filter(({ conditions }) => conditions['rate'] === undefined);

  const conditions = conditionsOf(fields);
  const selection = selectionOf();
  function selectionOf(): Partial<NewBatch> | undefined {
    if (by === 'rule') return filters.rule === undefined ? undefined : { rule_id: filters.rule };
    if (by === 'case') return filters.case === undefined ? undefined : { case_id: filters.case };
    if (by === 'conditions') return typeof conditions === 'string' ? undefined : { conditions };
    if (search.trim() === '') return undefined;
    const also = typeof conditions === 'string' ? {} : conditions;
    return conditions === 'none' || typeof conditions !== 'string'
      ? { conditions: { ...also, search: search.trim() } }
      : undefined;
  }
  const body: NewBatch | undefined =
    selection === undefined
      ? undefined
      : { ...selection, action, note, ...(action === 'label' ? { label } : {}) };
  const asked = JSON.stringify(body);
  const previewing = useMutation({
    mutationFn: async (made: NewBatch) => ({
      asked: JSON.stringify(made),
      found: await dataOf(api.POST('/v1/admin/moderation/batches/preview', { body: made })),
    }),
    meta: { quiet: true },
  });
  const starting = useAction(
    (made: NewBatch) => dataOf(api.POST('/v1/admin/moderation/batches', { body: made })),
    { changes: TOUCHED, onDone: ({ batch_id: id }) => void navigate({ to: `/batches/${id}` }) },
  );
  // A preview of something else than the form says now is not shown.
  const found = previewing.data;
  const preview = found !== undefined && found.asked === asked ? found.found : undefined;
  return (
    <>
      <Anchor component={Link} to="/batches" size="sm">
        {t('batches:back')}
      </Anchor>
      <PageHead title={t('batches:newTitle')} about={t('batches:newAbout')} />
      <Grid gap="lg">
        <Grid.Col span={{ base: 12, lg: 6 }}>
          <Paper withBorder p="md">
            <form
              onSubmit={(event) => {
                event.preventDefault();
                if (body !== undefined) previewing.mutate(body);
              }}
            >
              <Stack>
                <SegmentedControl
                  aria-label={t('batches:by')}
                  value={by}
                  onChange={(way) => setFilters({ by: way as (typeof WAYS)[number] })}
                  data={WAYS.filter((way) => way !== 'case' || filters.case !== undefined).map((way) => ({
                    value: way,
                    label: t(`batches:ways.${way}`),
                  }))}
                />
                {by === 'case' && <Text size="sm">{t('batches:ofCase')}</Text>}
                {by === 'rule' && (
                  <Select
                    label={t('batches:rule')}
                    description={t('batches:ruleAbout')}
                    data={rules.map(({ rule_id: id, name }) => ({ value: id, label: name }))}
                    value={filters.rule ?? null}
                    onChange={(rule) => setFilters({ rule: rule ?? undefined })}
                  />
                )}
                {by === 'search' && (
                  <TextInput
                    label={t('batches:search')}
                    description={t('batches:searchAbout')}
                    value={search}
                    onChange={(event) => setSearch(event.currentTarget.value)}
                  />
                )}
                {(by === 'conditions' || by === 'search') && (
                  <ConditionForm
                    value={fields}
                    onChange={setFields}
                    problem={typeof conditions === 'string' ? conditions : undefined}
                  />
                )}
                <Select
                  label={t('batches:action')}
                  allowDeselect={false}
                  data={ACTIONS.map((each) => ({ value: each, label: t(`batches:actions.${each}`) }))}
                  value={action}
                  onChange={(each) => each !== null && setAction(each as (typeof ACTIONS)[number])}
                />
                {action === 'label' && <LabelFields value={label} onChange={setLabel} />}
                <Textarea
                  label={t('batches:note')}
                  description={t('batches:noteAbout')}
                  autosize
                  minRows={1}
                  maxLength={2_000}
                  value={note}
                  onChange={(event) => setNote(event.currentTarget.value)}
                />
                <Button
                  type="submit"
                  variant="default"
                  disabled={body === undefined}
                  loading={previewing.isPending}
                >
                  {t('batches:preview')}
                </Button>
              </Stack>
            </form>
          </Paper>
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 6 }}>
          <Paper withBorder p="md" component="section" aria-live="polite">
            <Title order={2} size="h5" mb="sm">
              {t('batches:previewTitle')}
            </Title>
            {previewing.isError && <Failure error={previewing.error} />}
            {preview === undefined && !previewing.isError && (
              <Text size="sm">{t('batches:previewNothing')}</Text>
            )}
            {preview && (
              <Stack>
                <Findings {...preview} lookedAt={preview.looked_at} />
                <Warnings preview={preview} />
                <Button
                  color="red.8"
                  disabled={!may || preview.matched === 0}
                  loading={starting.isPending}
                  onClick={() => setAsking(true)}
                >
                  {t('batches:start')}
                </Button>
              </Stack>
            )}
          </Paper>
        </Grid.Col>
      </Grid>
      {preview && body && (
        <Confirm
          opened={isAsking}
          title={t('batches:startTitle')}
          name={String(preview.matched)}
          action={t('batches:start')}
          onClose={() => setAsking(false)}
          onConfirm={() => {
            setAsking(false);
            starting.mutate({ ...body, as_of: preview.as_of });
          }}
        >
          <Text size="sm">
            {t(`batches:startAbout.${action}`, {
              n: `${number(preview.matched)}${preview.stopped_early ? '+' : ''}`,
              authors: number(preview.authors.length),
            })}
          </Text>
        </Confirm>
      )}
    </>
  );
}

/** What the numbers leave out. */
function Warnings({ preview }: { readonly preview: Preview }) {
  const t = useT();
  const { stopped_early: isMore, index } = preview;
  if (!isMore && (index === null || (index.behind === 0 && !index.rebuilding))) return null;
  return (
    <Alert color="orange" variant="light">
      {isMore && <Text size="sm">{t('batches:more', { looked: number(preview.looked_at) })}</Text>}
      {index !== null && index.behind > 0 && (
        <Text size="sm">{t('batches:behind', { n: number(index.behind) })}</Text>
      )}
      {index?.rebuilding && <Text size="sm">{t('batches:rebuilding')}</Text>}
    </Alert>
  );
}
