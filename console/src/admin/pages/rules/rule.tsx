/** One rule: write it, and see at once what it would have matched among the stored events. */
import {
  Alert,
  Anchor,
  Button,
  Grid,
  Group,
  NumberInput,
  Paper,
  Select,
  Stack,
  Switch,
  Text,
  TextInput,
  Title,
} from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { ApiError, api, dataOf, useAction } from '../../../shared/api.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import type { LabelSpec } from '../cases/actions.js';
import { LabelFields, NEW_LABEL } from '../cases/label-fields.js';
import { RULES_KEY, useRules } from '../cases/rules-by-id.js';
import { ConditionForm } from './condition-form.js';
import { type ConditionFields, conditionsOf, fieldsOf, NO_CONDITIONS } from './conditions.js';
import { DeleteRule } from './delete-rule.js';
import { Findings } from './findings.js';
import './texts.js';
import { ACTIONS, type NewRule, type Rule } from './types.js';

const TRY_AFTER_MS = 600;
const LASTS = ['1000', '10000'] as const;

export default function RulePage() {
  const t = useT();
  const { ruleId } = useParams({ strict: false }) as { ruleId: string };
  const query = useRules();
  const rule = query.data?.find(({ rule_id: id }) => id === ruleId);
  return (
    <>
      <Anchor component={Link} to="/rules" size="sm">
        {t('rules:back')}
      </Anchor>
      {query.isPending && <Loading />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data && ruleId === 'new' && <Editor key="new" />}
      {rule && <Editor key={`${rule.rule_id} ${rule.version}`} rule={rule} />}
      {query.data && ruleId !== 'new' && rule === undefined && (
        <Empty title={t('rules:notFound')}>{t('rules:notFoundAbout')}</Empty>
      )}
    </>
  );
}

interface Draft {
  readonly name: string;
  readonly priority: number;
  readonly action: Rule['action'];
  readonly label: LabelSpec;
  readonly conditions: ConditionFields;
}

const draftOf = (rule: Rule | undefined): Draft => ({
  name: rule?.name ?? '',
  priority: rule?.priority ?? 0,
  action: rule?.action ?? 'hold',
  label: rule?.label ?? NEW_LABEL,
  conditions: rule === undefined ? NO_CONDITIONS : fieldsOf(rule.conditions),
});

function Editor({ rule }: { readonly rule?: Rule }) {
  const t = useT();
  const navigate = useNavigate();
  const may = useMay('operator');
  const [draft, setDraft] = useState(() => draftOf(rule));
  const [isDeleting, setDeleting] = useState(false);
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change });
  const conditions = conditionsOf(draft.conditions);
  const problem = typeof conditions === 'string' ? conditions : undefined;
  const spec: NewRule | undefined =
    typeof conditions === 'string'
      ? undefined
      : {
          name: draft.name.trim(),
          priority: draft.priority,
          action: draft.action,
          conditions,
          ...(draft.action === 'label' ? { label: draft.label } : {}),
        };
  const saving = useAction(
    ({ made, enable }: { readonly made: NewRule; readonly enable: boolean }) => save(rule, made, enable),
    {
      changes: [RULES_KEY],
      onDone: ({ rule_id: id, enabled, name }) => {
        notifyDone(enabled ? t('rules:nowOn', { name }) : t('rules:saved', { name }));
        if (rule === undefined) void navigate({ to: `/rules/${id}`, replace: true });
      },
    },
  );
  const canSave = may && spec !== undefined && spec.name !== '' && !saving.isPending;
  const isOn = rule?.enabled ?? false;
  return (
    <>
      <PageHead title={rule?.name ?? t('rules:newTitle')} about={t('rules:editorAbout')} />
      {!may && (
        <Alert mb="md" variant="light">
          {t('rules:readOnly')}
        </Alert>
      )}
      <Grid gap="lg">
        <Grid.Col span={{ base: 12, lg: 6 }}>
          <Paper withBorder p="md">
            <form
              onSubmit={(event) => {
                event.preventDefault();
                if (canSave) saving.mutate({ made: spec, enable: isOn });
              }}
            >
              <Stack>
                <Group grow align="flex-start" preventGrowOverflow={false} wrap="wrap">
                  <TextInput
                    required
                    disabled={!may}
                    label={t('rules:name')}
                    maxLength={100}
                    value={draft.name}
                    onChange={(event) => set({ name: event.currentTarget.value })}
                  />
                  <NumberInput
                    disabled={!may}
                    label={t('rules:priority')}
                    description={t('rules:priorityAbout')}
                    inputWrapperOrder={['label', 'input', 'description', 'error']}
                    min={-1_000}
                    max={1_000}
                    allowDecimal={false}
                    value={draft.priority}
                    onChange={(priority) => set({ priority: typeof priority === 'number' ? priority : 0 })}
                  />
                </Group>
                <Select
                  disabled={!may}
                  label={t('rules:action')}
                  allowDeselect={false}
                  data={ACTIONS.map((action) => ({ value: action, label: t(`rules:actions.${action}`) }))}
                  description={t(`rules:actionsAbout.${draft.action}`)}
                  inputWrapperOrder={['label', 'input', 'description', 'error']}
                  value={draft.action}
                  onChange={(action) => action !== null && set({ action: action as Rule['action'] })}
                />
                {draft.action === 'label' && (
                  <LabelFields value={draft.label} onChange={(label) => set({ label })} />
                )}
                <Title order={2} size="h5">
                  {t('rules:conditions')}
                </Title>
                <Text size="sm" c="dimmed" mt={-8}>
                  {t('rules:conditionsAbout')}
                </Text>
                <ConditionForm
                  hasRate
                  disabled={!may && rule !== undefined}
                  value={draft.conditions}
                  onChange={(changed) => set({ conditions: changed })}
                  problem={problem}
                />
                {may && (
                  <Group>
                    {!isOn && spec !== undefined && (
                      <Button
                        disabled={!canSave}
                        loading={saving.isPending}
                        onClick={() => saving.mutate({ made: spec, enable: true })}
                      >
                        {t('rules:saveEnable')}
                      </Button>
                    )}
                    <Button
                      type="submit"
                      variant={isOn ? 'filled' : 'default'}
                      disabled={!canSave}
                      loading={saving.isPending}
                    >
                      {t('rules:save')}
                    </Button>
                    {rule !== undefined && (
                      <Button variant="default" onClick={() => setDeleting(true)}>
                        {t('rules:delete')}
                      </Button>
                    )}
                  </Group>
                )}
              </Stack>
            </form>
          </Paper>
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 6 }}>
          <TryOut spec={spec} />
        </Grid.Col>
      </Grid>
      {rule && (
        <DeleteRule
          rule={rule}
          opened={isDeleting}
          onClose={() => setDeleting(false)}
          onDeleted={() => void navigate({ to: '/rules' })}
        />
      )}
    </>
  );
}

/** Writes the rule. A rule that is to be enabled is tried first, in the version that was written. */
async function save(rule: Rule | undefined, made: NewRule, enable: boolean): Promise<Rule> {
  const written = await write(rule, made);
  if (!enable || written.enabled) return written;
  if (written.tried_version !== written.version)
    await api.POST('/v1/admin/moderation/rules/try', { body: { rule_id: written.rule_id } });
  const path = { rule_id: written.rule_id };
  return dataOf(
    api.PATCH('/v1/admin/moderation/rules/{rule_id}', { params: { path }, body: { enabled: true } }),
  );
}

/** Sends only what has changed, so that a new name makes no new version. */
function write(rule: Rule | undefined, made: NewRule): Promise<Rule> {
  if (rule === undefined) return dataOf(api.POST('/v1/admin/moderation/rules', { body: made }));
  const { name, priority, conditions, action, label } = made;
  const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
  const before = fieldsOf(rule.conditions);
  const isSameJudgement =
    isSame(conditionsOf(before), conditions) && action === rule.action && isSame(label ?? null, rule.label);
  const body = {
    name,
    priority: priority ?? 0,
    ...(isSameJudgement ? {} : { conditions, action, label: label ?? null }),
  };
  const path = { rule_id: rule.rule_id };
  return dataOf(api.PATCH('/v1/admin/moderation/rules/{rule_id}', { params: { path }, body }));
}

/** Tries the rule as it is written now, shortly after the last key. */
function TryOut({ spec }: { readonly spec: NewRule | undefined }) {
  const t = useT();
  const [last, setLast] = useState<string>(LASTS[0]);
  const [isLive, setLive] = useState(true);
  const [tried] = useDebouncedValue(
    spec === undefined ? undefined : JSON.stringify(asTried(spec)),
    TRY_AFTER_MS,
  );
  const query = useQuery({
    queryKey: ['try', tried, last],
    queryFn: () =>
      dataOf(
        api.POST('/v1/admin/moderation/rules/try', {
          body: { rule: JSON.parse(tried ?? '{}') as NewRule, last: Number(last) },
        }),
      ),
    enabled: tried !== undefined && isLive,
    placeholderData: (before) => before,
    staleTime: 60_000,
    // Only few trials run at the same time.
    retry: (count, error) => count < 4 && error instanceof ApiError && error.status === 429,
  });
  return (
    <Paper withBorder p="md" component="section" aria-live="polite" aria-busy={query.isFetching}>
      <Group justify="space-between" align="flex-start" mb="sm">
        <div>
          <Title order={2} size="h5">
            {t('rules:try')}
          </Title>
          <Text size="sm" c="dimmed">
            {t('rules:tryAbout')}
          </Text>
        </div>
        <Group gap="sm">
          <Switch
            label={t('rules:live')}
            checked={isLive}
            onChange={(event) => setLive(event.currentTarget.checked)}
          />
          <Select
            w={150}
            size="xs"
            aria-label={t('rules:last')}
            allowDeselect={false}
            data={LASTS.map((value) => ({ value, label: t(`rules:lasts.n${value}`) }))}
            value={last}
            onChange={(value) => value !== null && setLast(value)}
          />
        </Group>
      </Group>
      {spec === undefined && <Text size="sm">{t('rules:tryNothing')}</Text>}
      {spec !== undefined && query.isError && <Failure error={query.error} />}
      {spec !== undefined && query.isPending && isLive && <Loading />}
      {spec !== undefined && query.data && (
        <Findings {...query.data} lookedAt={query.data.looked_at} matched={query.data.met} />
      )}
    </Paper>
  );
}

/** Its name and place do not change what it matches. */
const asTried = ({ conditions, action, label }: NewRule): NewRule => ({
  name: 'trial',
  conditions,
  action,
  ...(label === undefined ? {} : { label }),
});
