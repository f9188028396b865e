/** One version of a policy: its texts by language, and its steps from draft to current. */
import {
  Anchor,
  Button,
  Card,
  Code,
  Group,
  Stack,
  Tabs,
  Text,
  Textarea,
  TextInput,
  Title,
} from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { ApiError, api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { text, useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { PolicyStatus } from './list.js';
import './texts.js';

const KEY = ['policies'];
const filters = { locale: text };

interface Path {
  readonly type: 'terms' | 'privacy';
  readonly version: string;
}

const read = (path: Path) => dataOf(api.GET('/v1/admin/policies/{type}/{version}', { params: { path } }));
type Version = Awaited<ReturnType<typeof read>>;

export default function VersionPage() {
  const t = useT();
  const path = useParams({ strict: false }) as unknown as Path;
  const query = useQuery({ queryKey: ['policies', path.type, path.version], queryFn: () => read(path) });
  if (query.isPending) return <Loading />;
  if (query.isError) {
    const isMissing = query.error instanceof ApiError && query.error.status < 500;
    return (
      <>
        <PageHead title={t('policies:title')} />
        {isMissing ? (
          <Empty
            title={t('policies:notFound')}
            action={
              <Anchor component={Link} to="/policies">
                {t('policies:back')}
              </Anchor>
            }
          />
        ) : (
          <Failure error={query.error} retry={() => void query.refetch()} />
        )}
      </>
    );
  }
  return <Known path={path} version={query.data} />;
}

interface KnownProps {
  readonly path: Path;
  readonly version: Version;
}

function Known({ path, version }: KnownProps) {
  const t = useT();
  const mayAct = useMay('operator');
  const [{ locale }, setFilters] = useFilters(filters);
  const [isAdding, setAdding] = useState(false);
  const written = version.texts.map((text) => text.locale);
  const shown = locale ?? written[0];
  const locales = shown === undefined || written.includes(shown) ? written : [...written, shown];
  return (
    <>
      <Anchor component={Link} to="/policies" size="sm">
        {t('policies:back')}
      </Anchor>
      <PageHead
        title={`${t(`policies:types.${version.type}`)} ${version.version}`}
        about={<PolicyStatus status={version.status} />}
      >
        {mayAct && <Steps path={path} version={version} />}
      </PageHead>
      {mayAct && (
        <Button variant="default" size="xs" mb="md" onClick={() => setAdding(true)}>
          {t('policies:addLanguage')}
        </Button>
      )}
      {shown === undefined ? (
        <Empty title={t('policies:noTexts')}>{t('policies:noTextsAbout')}</Empty>
      ) : (
        <Tabs
          value={shown}
          onChange={(next) => setFilters({ locale: next ?? undefined })}
          keepMounted={false}
        >
          <Tabs.List aria-label={t('policies:languages')} mb="md">
            {locales.map((name) => (
              <Tabs.Tab key={name} value={name}>
                {name}
              </Tabs.Tab>
            ))}
          </Tabs.List>
          {locales.map((name) => (
            <Tabs.Panel key={name} value={name}>
              <OneText
                path={path}
                locale={name}
                isWritten={written.includes(name)}
                isDraft={version.status === 'draft'}
                onRemoved={() => setFilters({ locale: undefined })}
              />
            </Tabs.Panel>
          ))}
        </Tabs>
      )}
      {isAdding && (
        <AddLanguage
          onClose={() => setAdding(false)}
          onAdd={(added) => {
            setAdding(false);
            setFilters({ locale: added });
          }}
        />
      )}
    </>
  );
}

function Steps({ path, version }: KnownProps) {
  const t = useT();
  const navigate = useNavigate();
  const [asking, setAsking] = useState<'publish' | 'makeCurrent' | 'remove'>();
  const params = { params: { path } };
  const done = (said: string) => ({
    changes: [KEY],
    onDone: () => {
      setAsking(undefined);
      notifyDone(said);
    },
  });
  const publish = useAction(
    () => dataOf(api.POST('/v1/admin/policies/{type}/{version}/publish', params)),
    done(t('policies:published')),
  );
  const makeCurrent = useAction(
    () => dataOf(api.POST('/v1/admin/policies/{type}/{version}/make-current', params)),
    done(t('policies:madeCurrent')),
  );
  const remove = useAction(() => dataOf(api.DELETE('/v1/admin/policies/{type}/{version}', params)), {
    changes: [],
    onDone: () => {
      notifyDone(t('policies:removed'));
      void navigate({ to: '/policies' as string });
    },
  });
  const name = `${t(`policies:types.${version.type}`)} ${version.version}`;
  const count = version.texts.length;
  const close = () => setAsking(undefined);
  return (
    <>
      {version.status === 'draft' && (
        <>
          <Button variant="default" onClick={() => setAsking('remove')}>
            {t('policies:remove')}
          </Button>
          <Button disabled={count === 0} onClick={() => setAsking('publish')}>
            {t('policies:publish')}
          </Button>
        </>
      )}
      {version.status === 'published' && (
        <Button onClick={() => setAsking('makeCurrent')}>{t('policies:makeCurrent')}</Button>
      )}
      <Confirm
        opened={asking === 'publish'}
        title={t('policies:publishTitle', { name })}
        action={t('policies:publish')}
        isHarmless
        isBusy={publish.isPending}
        onClose={close}
        onConfirm={() => publish.mutate(undefined)}
      >
        <Text size="sm">{t('policies:publishAbout', { count })}</Text>
      </Confirm>
      <Confirm
        opened={asking === 'makeCurrent'}
        title={t('policies:makeCurrentTitle', { name })}
        action={t('policies:makeCurrent')}
        name={version.version}
        isBusy={makeCurrent.isPending}
        onClose={close}
        onConfirm={() => makeCurrent.mutate(undefined)}
      >
        <Text size="sm">{t('policies:makeCurrentAbout')}</Text>
      </Confirm>
      <Confirm
        opened={asking === 'remove'}
        title={t('policies:removeTitle', { name })}
        action={t('policies:remove')}
        name={version.version}
        isBusy={remove.isPending}
        onClose={close}
        onConfirm={() => remove.mutate(undefined)}
      >
        <Text size="sm">{t('policies:removeAbout', { count })}</Text>
      </Confirm>
    </>
  );
}

interface OneTextProps {
  readonly path: Path;
  readonly locale: string;
  readonly isWritten: boolean;
  readonly isDraft: boolean;
  readonly onRemoved: () => void;
}

function OneText(props: OneTextProps) {
  const { path, locale, isWritten } = props;
  const query = useQuery({
    queryKey: ['policies', path.type, path.version, locale],
    enabled: isWritten,
    queryFn: () =>
      dataOf(
        api.GET('/v1/admin/policies/{type}/{version}/texts/{locale}', {
          params: { path: { ...path, locale } },
        }),
      ),
  });
  if (!isWritten) return <Editor {...props} title="" content="" hash={undefined} />;
  if (query.isPending) return <Loading />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const { title, content, content_hash: hash } = query.data;
  return <Editor key={hash} {...props} title={title} content={content} hash={hash} />;
}

interface EditorProps extends OneTextProps {
  readonly title: string;
  readonly content: string;
  readonly hash: string | undefined;
}

function Editor({ path, locale, isWritten, isDraft, onRemoved, ...stored }: EditorProps) {
  const t = useT();
  const mayAct = useMay('operator');
  const [title, setTitle] = useState(stored.title);
  const [content, setContent] = useState(stored.content);
  const params = { params: { path: { ...path, locale } } };
  const save = useAction(
    () =>
      dataOf(
        api.PUT('/v1/admin/policies/{type}/{version}/texts/{locale}', {
          ...params,
          body: { title, content },
        }),
      ),
    { changes: [KEY], onDone: () => notifyDone(t('policies:saved')) },
  );
  const remove = useAction(
    () => dataOf(api.DELETE('/v1/admin/policies/{type}/{version}/texts/{locale}', params)),
    { changes: [KEY], onDone: onRemoved },
  );
  const mayWrite = mayAct && (isDraft || !isWritten);
  return (
    <Card withBorder component="section">
      <Title order={2} size="h5" mb="sm">
        {t('policies:textIn', { locale })}
      </Title>
      {mayWrite ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            save.mutate(undefined);
          }}
        >
          <Stack>
            <TextInput
              required
              label={t('policies:titleLabel')}
              value={title}
              onChange={(event) => setTitle(event.currentTarget.value)}
            />
            <Textarea
              required
              autosize
              minRows={10}
              maxRows={30}
              label={t('policies:contentLabel')}
              description={t('policies:contentAbout')}
              value={content}
              onChange={(event) => setContent(event.currentTarget.value)}
            />
            <Group>
              <Button type="submit" loading={save.isPending}>
                {t('policies:save')}
              </Button>
              {isWritten && (
                <Button variant="default" loading={remove.isPending} onClick={() => remove.mutate(undefined)}>
                  {t('policies:removeText')}
                </Button>
              )}
            </Group>
          </Stack>
        </form>
      ) : (
        <Stack>
          <Title order={3} size="h5">
            {stored.title}
          </Title>
          <Text size="sm" className="text">
            {stored.content}
          </Text>
          {!isDraft && (
            <Text size="xs" c="dimmed">
              {t('policies:fixed')}
            </Text>
          )}
        </Stack>
      )}
      {stored.hash !== undefined && (
        <Text size="xs" c="dimmed" mt="md" className="text">
          {t('policies:hash')} <Code>{stored.hash}</Code>
        </Text>
      )}
    </Card>
  );
}

interface AddLanguageProps {
  readonly onClose: () => void;
  readonly onAdd: (locale: string) => void;
}

function AddLanguage({ onClose, onAdd }: AddLanguageProps) {
  const t = useT();
  const [locale, setLocale] = useState('');
  const tag = canonical(locale.trim());
  return (
    <Confirm
      opened
      title={t('policies:addLanguage')}
      action={t('policies:add')}
      isHarmless
      isDisabled={tag === undefined}
      onClose={onClose}
      onConfirm={() => tag !== undefined && onAdd(tag)}
    >
      <TextInput
        label={t('policies:locale')}
        description={t('policies:localeAbout')}
        value={locale}
        onChange={(event) => setLocale(event.currentTarget.value)}
      />
    </Confirm>
  );
}

/** A tag as the node writes it; undefined if it is none. */
function canonical(tag: string): string | undefined {
  try {
    return Intl.getCanonicalLocales(tag)[0];
  } catch {
    return undefined;
  }
}
