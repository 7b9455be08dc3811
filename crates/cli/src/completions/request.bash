
# Requests: filters, parameters, files and devices inside the quotes.
_streamline_request() {
    local cur="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
    case "${command}:${prev}" in
        *:-f|*:--file|*:--daemon|*:--stats|*:--stats-file|*:-D) _streamline "$@"; return ;;
        run:*|check:*|explain:*|fmt:*|replace:*) ;;
        *) _streamline "$@"; return ;;
    esac
    if [[ "${cur}" == -* || ( "${command}" == replace && ${COMP_CWORD} -eq 2 ) ]]; then
        _streamline "$@"
        return
    fi
    local open="" text="${cur}" line
    case "${cur}" in
        \'*|\"*) open="${cur:0:1}"; text="${cur:1}" ;;
    esac
    local -a full=()
    while IFS= read -r line; do
        full+=("${line%%$'\t'*}")
    done < <("${COMP_WORDS[0]}" complete -- "${text}" 2>/dev/null)
    compopt -o nospace +o default +o bashdefault 2>/dev/null
    if [[ -z "${cur}" ]]; then
        # The request is one word: begins with a quote.
        COMPREPLY=("${full[@]/#/\'}")
    elif (( ${#full[@]} == 1 )); then
        # Readline would close the quote behind the only one, and the request goes on.
        COMPREPLY=("${full[0]}" "${full[0]} ")
    else
        COMPREPLY=("${full[@]}")
    fi
}

complete -F _streamline_request -o bashdefault -o default streamline
