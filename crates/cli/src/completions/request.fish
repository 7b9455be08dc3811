
# Requests: filters, parameters, files and devices inside the quotes.
function __streamline_request
    set -l text (commandline -ct | string replace -r "^['\"]" '')
    streamline complete -- "$text" 2>/dev/null
end
for command in run check explain fmt replace
    complete -c streamline -n "__fish_streamline_using_subcommand $command" -f -k -a '(__streamline_request)'
end
